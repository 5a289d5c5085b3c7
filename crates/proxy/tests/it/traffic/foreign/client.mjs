// Node's HTTP client and WebSocket against the proxy: node --experimental-websocket client.mjs HTTP_PORT WS_PORT...
import http from 'node:http';
import assert from 'node:assert';

const [httpPort, ...wsPorts] = process.argv.slice(2).map(Number);
const agent = new http.Agent({ keepAlive: true, maxSockets: 2 });

function post(body, chunked) {
  return new Promise((resolve, reject) => {
    const headers = chunked ? { 'Transfer-Encoding': 'chunked' } : { 'Content-Length': body.length };
    const request = http.request({ port: httpPort, method: 'POST', agent, headers }, (response) => {
      const pieces = [];
      response.on('data', (piece) => pieces.push(piece));
      response.on('end', () => resolve({ status: response.statusCode, body: Buffer.concat(pieces) }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function speakHttp() {
  const sizes = [0, 1, 1000, 65536, 16 << 20];
  for (const size of sizes) {
    for (const chunked of [false, true]) {
      const body = Buffer.alloc(size, 'x');
      const answer = await post(body, chunked);
      assert.equal(answer.status, 200);
      assert.ok(answer.body.equals(body), `${size} bytes, chunked ${chunked}: got ${answer.body.length}`);
    }
  }
  const many = await Promise.all(Array.from({ length: 200 }, (_, i) => post(Buffer.from(`${i}`), false)));
  many.forEach((answer, i) => assert.equal(answer.body.toString(), `${i}`));
  agent.destroy();
}

function speakWebSocket(port) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/chat`);
    socket.binaryType = 'arraybuffer';
    const sent = ['text', '', 'grüß', Buffer.alloc(65536, 7), Buffer.alloc(1 << 20, 8), ...Array.from({ length: 300 }, (_, i) => `${i}`)];
    const got = [];
    socket.onopen = () => sent.forEach((message) => socket.send(message));
    socket.onerror = (event) => reject(event.error ?? new Error(`port ${port}: ${event.message}`));
    socket.onmessage = ({ data }) => {
      got.push(data);
      if (got.length === sent.length) socket.close(4001, 'bye');
    };
    socket.onclose = ({ code, reason, wasClean }) => {
      try {
        assert.deepEqual([got.length, code, reason, wasClean], [sent.length, 4001, 'bye', true], `port ${port}`);
        got.forEach((data, i) => {
          if (typeof sent[i] === 'string') assert.equal(data, sent[i]);
          else assert.ok(Buffer.from(data).equals(sent[i]));
        });
        resolve();
      } catch (error) {
        reject(error);
      }
    };
  });
}

await speakHttp();
for (const port of wsPorts) await speakWebSocket(port);
process.exit(0);
