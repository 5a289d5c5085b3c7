//! A small reader of Rust sources: which paths a file names, seen from its crate's root.
//!
//! It reads tokens, not grammar: comments and literals are dropped, `use` trees are opened, and `self` and
//! `super` are resolved against the module a token stands in, inline modules included.

use std::collections::BTreeSet;

/// What one file names.
pub(crate) struct Source {
    pub(crate) uses: Vec<Use>,
    /// Items at the top level of the file and of its inline modules, by module and name.
    pub(crate) items: Vec<(Vec<String>, String)>,
    /// Every identifier outside of `use`.
    pub(crate) mentions: BTreeSet<String>,
    /// Every identifier, with its line.
    pub(crate) words: Vec<(usize, String)>,
}

/// A path of two or more segments, or one in a `use`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) line: usize,
    /// The module it stands in: the file's own, or an inline one.
    pub(crate) module: Vec<String>,
    /// The name that a `use` brings into scope; none for paths elsewhere.
    pub(crate) import: Option<Import>,
    /// Whether it is a `pub use`, of any visibility.
    pub(crate) public: bool,
    /// Starts with `crate` when it is one of the file's own crate.
    pub(crate) path: Vec<String>,
    /// Whether it ends in `*` or gets another name, so that what follows it is out of sight.
    pub(crate) whole: bool,
}

/// What a `use` brings into scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Import {
    Name(String),
    Glob,
}

impl Use {
    /// Whether it only passes a name on to others.
    pub(crate) fn is_re_export(&self, source_mentions: &BTreeSet<String>) -> bool {
        let is_mentioned = |name: &str| source_mentions.contains(name);
        self.public && matches!(&self.import, Some(Import::Name(name)) if !is_mentioned(name))
    }
}

impl Source {
    /// Reads the text of a file that is the given module.
    pub(crate) fn scan(text: &str, module: &[String]) -> Self {
        let tokens = tokenize(text);
        let words = tokens.iter().filter_map(|(line, token)| token.word().map(|word| (*line, word.to_owned())));
        let words = words.collect();
        let mut reader = Reader {
            tokens: &tokens,
            at: 0,
            module: module.to_vec(),
            inline: Vec::new(),
            uses: Vec::new(),
            items: Vec::new(),
            mentions: BTreeSet::new(),
            public: false,
        };
        reader.file();
        Self { uses: reader.uses, items: reader.items, mentions: reader.mentions, words }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// The two colons between the segments of a path.
    Colons,
    Sign(char),
}

impl Token {
    fn word(&self) -> Option<&str> {
        match self {
            Self::Word(word) => Some(word),
            Self::Colons | Self::Sign(_) => None,
        }
    }
}

/// Walks the tokens and keeps track of the module they stand in.
struct Reader<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
    module: Vec<String>,
    /// Open braces: whether each is that of an inline module.
    inline: Vec<bool>,
    uses: Vec<Use>,
    items: Vec<(Vec<String>, String)>,
    mentions: BTreeSet<String>,
    /// The `use` that is being read is public.
    public: bool,
}

impl Reader<'_> {
    fn file(&mut self) {
        while let Some(token) = self.peek(0) {
            match token {
                Token::Word(word) if word == "mod" && self.opens_module() => {
                    let name = self.peek(1).and_then(Token::word).expect("a module has a name").to_owned();
                    self.module.push(name);
                    self.inline.push(true);
                    self.at += 3;
                }
                Token::Word(word) if word == "use" => {
                    self.public = self.is_public();
                    self.at += 1;
                    self.tree(&[], true);
                    self.public = false;
                }
                Token::Word(word) => {
                    if is_item_keyword(word) {
                        self.item();
                    }
                    self.tree(&[], false);
                }
                Token::Sign('{') => {
                    self.inline.push(false);
                    self.at += 1;
                }
                Token::Sign('}') => {
                    if self.inline.pop() == Some(true) {
                        self.module.pop();
                    }
                    self.at += 1;
                }
                Token::Colons | Token::Sign(_) => self.at += 1,
            }
        }
    }

    /// Notes the name of an item, if the keyword before it stands at the top level of a module.
    fn item(&mut self) {
        let name = self.peek(1).and_then(Token::word).filter(|word| !is_item_keyword(word));
        if let Some(name) = name.filter(|_| self.inline.iter().all(|is_module| *is_module)) {
            self.items.push((self.module.clone(), name.to_owned()));
        }
    }

    /// Reads one path, and in a `use` all branches below it.
    fn tree(&mut self, prefix: &[String], in_use: bool) {
        let mut path = prefix.to_vec();
        if self.peek(0) == Some(&Token::Colons) {
            self.at += 1;
        }
        let line = self.tokens.get(self.at).map_or(0, |(line, _)| *line);
        loop {
            match self.peek(0) {
                Some(Token::Word(word)) => {
                    let word = word.clone();
                    if !in_use {
                        self.mentions.insert(word.clone());
                    }
                    path.push(word);
                    self.at += 1;
                }
                Some(Token::Sign('*')) if in_use => {
                    self.at += 1;
                    return self.note(line, &path, true, Some(Import::Glob));
                }
                Some(Token::Sign('{')) if in_use => {
                    self.at += 1;
                    return self.branches(&path);
                }
                _ => break,
            }
            if self.peek(0) != Some(&Token::Colons) {
                break;
            }
            self.at += 1;
        }
        let renamed = in_use && self.peek(0).and_then(Token::word) == Some("as");
        let mut name = path.iter().rev().find(|segment| *segment != "self").cloned();
        if renamed {
            name = self.peek(1).and_then(Token::word).map(str::to_owned);
            self.at += 2;
        }
        if in_use || path.len() > 1 {
            self.note(line, &path, renamed, name.filter(|_| in_use).map(Import::Name));
        }
    }

    fn branches(&mut self, prefix: &[String]) {
        while let Some(token) = self.peek(0) {
            match token {
                Token::Sign('}') => {
                    self.at += 1;
                    return;
                }
                Token::Word(_) | Token::Colons | Token::Sign('*' | '{') => self.tree(prefix, true),
                Token::Sign(_) => self.at += 1,
            }
        }
    }

    fn note(&mut self, line: usize, path: &[String], whole: bool, import: Option<Import>) {
        let path = resolve(path, &self.module);
        self.uses.push(Use { line, module: self.module.clone(), import, public: self.public, path, whole });
    }

    /// Whether `pub`, or `pub(..)`, stands before the token.
    fn is_public(&self) -> bool {
        let before = self.tokens[..self.at].iter().rev().map(|(_, token)| token);
        let mut before = before
            .skip_while(|token| !matches!(token, Token::Sign(';' | '}' | ']' | '{')) && token.word() != Some("pub"));
        before.next().and_then(Token::word) == Some("pub")
    }

    fn opens_module(&self) -> bool {
        matches!((self.peek(1), self.peek(2)), (Some(Token::Word(_)), Some(Token::Sign('{'))))
    }

    fn peek(&self, ahead: usize) -> Option<&Token> {
        self.tokens.get(self.at + ahead).map(|(_, token)| token)
    }
}

/// Whether the word after this one names an item.
fn is_item_keyword(word: &str) -> bool {
    matches!(word, "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static" | "macro_rules")
}

/// Rewrites a path from where it stands to one that starts at `crate`; paths of other crates stay.
fn resolve(path: &[String], module: &[String]) -> Vec<String> {
    let mut base: Option<Vec<String>> = None;
    for segment in path {
        let from = base.take();
        base = Some(match (segment.as_str(), from) {
            ("crate", _) => vec!["crate".to_owned()],
            ("self", None) => crate_path(module),
            ("self", Some(from)) => from,
            ("super", None) => up(crate_path(module)),
            ("super", Some(from)) => up(from),
            (_, from) => {
                let mut to = from.unwrap_or_default();
                to.push(segment.clone());
                to
            }
        });
    }
    base.unwrap_or_default()
}

fn crate_path(module: &[String]) -> Vec<String> {
    std::iter::once("crate".to_owned()).chain(module.iter().cloned()).collect()
}

fn up(mut path: Vec<String>) -> Vec<String> {
    if path.len() > 1 {
        path.pop();
    }
    path
}

/// Splits a source into words, path colons and other signs; comments and literals are left out.
fn tokenize(text: &str) -> Vec<(usize, Token)> {
    let chars: Vec<char> = text.chars().collect();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(&c) = chars.get(at) {
        let next = chars.get(at + 1).copied();
        let end = match c {
            '/' if next == Some('/') => find(&chars, at, '\n'),
            '/' if next == Some('*') => end_of_comment(&chars, at),
            '"' => end_of_string(&chars, at),
            '\'' => end_of_quote(&chars, at),
            ':' if next == Some(':') => {
                tokens.push((line, Token::Colons));
                at + 2
            }
            _ if c.is_alphabetic() || c == '_' => {
                let end = skip(&chars, at, |c| c.is_alphanumeric() || c == '_');
                let word: String = chars[at..end].iter().collect();
                match (word.as_str(), chars.get(end)) {
                    ("r" | "br" | "cr", Some('"' | '#')) => {
                        raw(&chars, end).unwrap_or_else(|| {
                            // `r#word` is a word
                            let last = skip(&chars, end + 1, |c| c.is_alphanumeric() || c == '_');
                            tokens.push((line, Token::Word(chars[end + 1..last].iter().collect())));
                            last
                        })
                    }
                    ("b" | "c", Some('"')) => end_of_string(&chars, end),
                    ("b", Some('\'')) => end_of_quote(&chars, end),
                    _ => {
                        tokens.push((line, Token::Word(word)));
                        end
                    }
                }
            }
            _ if c.is_ascii_digit() => skip(&chars, at, |c| c.is_alphanumeric() || c == '_'),
            _ if c.is_whitespace() => at + 1,
            _ => {
                tokens.push((line, Token::Sign(c)));
                at + 1
            }
        };
        line += chars[at..end].iter().filter(|c| **c == '\n').count();
        at = end;
    }
    tokens
}

fn skip(chars: &[char], from: usize, while_: impl Fn(char) -> bool) -> usize {
    let past = chars.get(from..).and_then(|rest| rest.iter().position(|c| !while_(*c)));
    past.map_or(chars.len(), |past| from + past)
}

fn find(chars: &[char], from: usize, what: char) -> usize {
    skip(chars, from, |c| c != what)
}

/// Block comments nest.
fn end_of_comment(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => {
                depth += 1;
                at += 2;
            }
            ('*', Some('/')) => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    chars.len()
}

fn end_of_string(chars: &[char], start: usize) -> usize {
    let mut at = start + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// A character literal ends at its second quote; a lifetime has none, so only its first is passed over.
fn end_of_quote(chars: &[char], start: usize) -> usize {
    match (chars.get(start + 1), chars.get(start + 2)) {
        (Some('\\'), _) => (find(chars, start + 3, '\'') + 1).min(chars.len()),
        (Some(_), Some('\'')) => start + 3,
        _ => start + 1,
    }
}

/// The end of a raw string that starts with `#`s or a quote; `None` when it is a raw word.
fn raw(chars: &[char], start: usize) -> Option<usize> {
    let open = skip(chars, start, |c| c == '#');
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let hashes = open - start;
    let mut at = open + 1;
    while at < chars.len() {
        let quote = find(chars, at, '"');
        let after = skip(chars, quote + 1, |c| c == '#');
        if after.saturating_sub(quote + 1) >= hashes {
            return Some(quote + 1 + hashes);
        }
        at = quote + 1;
    }
    Some(chars.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_trees_are_opened() {
        assert_eq!(paths("use a::{b, c::{d as e, *}, self};", &[]), ["a::b", "a::c::d whole", "a::c whole", "a"]);
    }

    #[test]
    fn paths_are_seen_from_the_root_of_the_crate() {
        let text = "fn f() { self::x::y(); super::z(); mod m { use super::super::q; } super::last(); }";
        assert_eq!(paths(text, &["a", "b"]), ["crate::a::b::x::y", "crate::a::z", "crate::a::q", "crate::a::last"]);
    }

    #[test]
    fn generic_paths_are_seen_inside_and_out() {
        assert_eq!(paths("let x: a::B<c::D> = e::F::<g::H>::new();", &[]), ["a::B", "c::D", "e::F", "g::H"]);
    }

    #[test]
    fn comments_and_literals_are_passed_over_and_lines_counted() {
        let text = "// a::b\n/* c::d\n/* e::f */ */ \"g::h\n\\\"\" b'\\'' 'x' r\"i::j\" br##\"k\"#::l\"## &'m n::o r#p";
        let source = Source::scan(text, &[]);
        assert_eq!(source.uses.len(), 1);
        assert_eq!((source.uses[0].line, source.uses[0].path.join("::")), (4, "n::o".to_owned()));
        let words: Vec<_> = source.words.iter().map(|(_, word)| word.as_str()).collect();
        assert_eq!(words, ["m", "n", "o", "p"]);
    }

    #[test]
    fn text_cut_anywhere_is_read_to_its_end() {
        let text = "use a::{b, c}; /* x */ r#\"y\"# 'z' b'\\n' \"s\" mod m { super::t }";
        for end in 0..=text.len() {
            Source::scan(&text[..end], &["a".to_owned()]);
        }
    }

    fn paths(text: &str, module: &[&str]) -> Vec<String> {
        let module: Vec<String> = module.iter().map(|&part| part.to_owned()).collect();
        let show = |Use { path, whole, .. }: &Use| format!("{}{}", path.join("::"), if *whole { " whole" } else { "" });
        Source::scan(text, &module).uses.iter().map(show).collect()
    }
}
