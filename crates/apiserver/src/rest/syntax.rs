//! What is wrong with a JSON text, in Go's words, which Kubernetes hands to its clients.
//!
//! Only texts that serde_json refused come here. The nesting is kept in a list, so depth costs no stack.

use super::text::quote_byte;

/// Levels of nesting that bodies may have: what serde_json takes. Kubernetes takes 10,000.
pub const MAX_DEPTH: usize = 127;

/// The first fault of a text; none when it is JSON of a bearable depth.
pub fn fault(text: &[u8]) -> Option<String> {
    let mut scanner = Scanner { text, at: 0, open: Vec::new() };
    scanner.document().err().map(|fault| match fault {
        Fault::End => "unexpected end of JSON input".to_owned(),
        Fault::At(byte, context) => format!("invalid character {} {context}", quote_byte(byte)),
    })
}

enum Fault {
    End,
    At(u8, String),
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
    Object,
    Array,
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    open: Vec<Open>,
}

impl Scanner<'_> {
    fn document(&mut self) -> Result<(), Fault> {
        loop {
            let done = self.value()?;
            if done && self.close()? {
                return Ok(());
            }
        }
    }

    /// Reads the start of a value; true when a whole value was read.
    fn value(&mut self) -> Result<bool, Fault> {
        match self.skip_space()? {
            b'{' => {
                self.nest(Open::Object, b'{')?;
                if self.skip_space()? == b'}' {
                    self.at += 1;
                    self.open.pop();
                    return Ok(true);
                }
                self.key()?;
                Ok(false)
            }
            b'[' => {
                self.nest(Open::Array, b'[')?;
                if self.skip_space()? == b']' {
                    self.at += 1;
                    self.open.pop();
                    return Ok(true);
                }
                Ok(false)
            }
            b'"' => self.string().map(|()| true),
            b'-' | b'0'..=b'9' => self.number().map(|()| true),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            other => Err(at(other, "looking for beginning of value")),
        }
    }

    /// Goes on behind a value: true at the end of the text.
    fn close(&mut self) -> Result<bool, Fault> {
        loop {
            let Some(&open) = self.open.last() else {
                return match self.skip_space() {
                    Err(_) => Ok(true),
                    Ok(other) => Err(at(other, "after top-level value")),
                };
            };
            let byte = self.skip_space()?;
            self.at += 1;
            match (open, byte) {
                (Open::Object, b'}') | (Open::Array, b']') => {
                    self.open.pop();
                }
                (Open::Object, b',') => {
                    self.skip_space()?;
                    self.key()?;
                    return Ok(false);
                }
                (Open::Array, b',') => return Ok(false),
                (Open::Object, other) => return Err(at(other, "after object key:value pair")),
                (Open::Array, other) => return Err(at(other, "after array element")),
            }
        }
    }

    fn key(&mut self) -> Result<(), Fault> {
        match self.skip_space()? {
            b'"' => self.string()?,
            other => return Err(at(other, "looking for beginning of object key string")),
        }
        match self.skip_space()? {
            b':' => self.at += 1,
            other => return Err(at(other, "after object key")),
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), Fault> {
        self.at += 1;
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next()?;
                            if !digit.is_ascii_hexdigit() {
                                return Err(at(digit, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    other => return Err(at(other, "in string escape code")),
                },
                control @ 0..=0x1f => return Err(at(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.text[self.at] == b'-' {
            self.at += 1;
        }
        match self.number_byte() {
            b'0' => {}
            b'1'..=b'9' => self.digits(),
            other => return Err(at(other, "in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            match self.number_byte() {
                b'0'..=b'9' => self.digits(),
                other => return Err(at(other, "after decimal point in numeric literal")),
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            match self.number_byte() {
                b'0'..=b'9' => self.digits(),
                other => return Err(at(other, "in exponent of numeric literal")),
            }
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Result<bool, Fault> {
        for &expected in word.as_bytes() {
            // Go ends a text with a space, so a cut literal shows one.
            let byte = self.peek().unwrap_or(b' ');
            if byte != expected {
                return Err(at(byte, &format!("in literal {word} (expecting {})", quote_byte(expected))));
            }
            self.at += 1;
        }
        Ok(true)
    }

    fn nest(&mut self, open: Open, byte: u8) -> Result<(), Fault> {
        self.at += 1;
        self.open.push(open);
        if self.open.len() > MAX_DEPTH { Err(at(byte, "exceeded max depth")) } else { Ok(()) }
    }

    fn digits(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
    }

    fn number_byte(&mut self) -> u8 {
        let byte = self.peek().unwrap_or(b' ');
        self.at += 1;
        byte
    }

    fn skip_space(&mut self) -> Result<u8, Fault> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        self.peek().ok_or(Fault::End)
    }

    fn next(&mut self) -> Result<u8, Fault> {
        let byte = self.peek().ok_or(Fault::End)?;
        self.at += 1;
        Ok(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

fn at(byte: u8, context: &str) -> Fault {
    Fault::At(byte, context.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_in_the_words_of_the_real_server() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("{", "unexpected end of JSON input"),
            (r#"{"a""#, "unexpected end of JSON input"),
            (r#"{"a":1"#, "unexpected end of JSON input"),
            (r#"{"a":1,"#, "unexpected end of JSON input"),
            (r#"{"kind":"x"#, "unexpected end of JSON input"),
            (r#"{"a":1}x"#, "invalid character 'x' after top-level value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{'a':1}", r"invalid character '\'' looking for beginning of object key string"),
            (r#"{"a":tru}"#, "invalid character '}' in literal true (expecting 'e')"),
            (r#"{"a":nul"#, "invalid character ' ' in literal null (expecting 'l')"),
            (r#"{"a":01}"#, "invalid character '1' after object key:value pair"),
            (r#"{"a":1.}"#, "invalid character '}' after decimal point in numeric literal"),
            (r#"{"a":1e}"#, "invalid character '}' in exponent of numeric literal"),
            (r#"{"a":-}"#, "invalid character '}' in numeric literal"),
            (r#"{"a":"\q"}"#, "invalid character 'q' in string escape code"),
            (r#"{"a":"\u12g4"}"#, r"invalid character 'g' in \u hexadecimal character escape"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 2}"#, "invalid character '2' after object key:value pair"),
            (r#"{"a":[1 2]}"#, "invalid character '2' after array element"),
            (r#"{"a":[1,]}"#, "invalid character ']' looking for beginning of value"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            ("{\"a\":\"\u{1}\"}", r"invalid character '\x01' in string literal"),
            ("{\"a\":\"\n\"}", r"invalid character '\n' in string literal"),
        ] {
            assert_eq!(fault(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn whole_texts_have_no_fault() {
        for text in [r#" {"a":[1,-2.5e+3,{"b":null,"c":[]},"\u00e9\n"],"d":{}} "#, "null", "[[],{}]", "0", "\"x\""] {
            assert_eq!(fault(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn depth_is_a_fault_before_it_is_a_stack_overflow() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(fault(deep.as_bytes()).unwrap(), "invalid character '[' exceeded max depth");
        let bearable = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
        assert_eq!(fault(bearable.as_bytes()), None);
        assert!(serde_json::from_str::<serde_json::Value>(&bearable).is_ok());
        assert!(serde_json::from_str::<serde_json::Value>(&format!("[{bearable}]")).is_err());
    }
}
