//! A case file: comments with headers, the source, and behind `----` what is expected.

use std::path::{Path, PathBuf};

/// The line between the source and what is expected of it.
const SEPARATOR: &str = "----";

/// One file under `tests/cases`.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Its path below `tests/cases`, with `/`: the name of the test.
    pub(crate) name: String,
    /// The comments at the top, with their line ends.
    pub(crate) header: String,
    /// What stands between the comments and `----`.
    pub(crate) body: String,
    /// What stands behind `----`, if that is there.
    pub(crate) expected: Option<String>,
    directives: Vec<(String, String)>,
}

impl Case {
    /// Reads a file below `root`.
    pub(crate) fn read(root: &Path, path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let below = path.strip_prefix(root).unwrap_or(path);
        let parts: Vec<_> = below.iter().map(|p| p.to_string_lossy()).collect();
        Self::from_text(path.to_owned(), parts.join("/"), &text)
    }

    fn from_text(path: PathBuf, name: String, text: &str) -> Result<Self, String> {
        let mut sections: Vec<String> = vec![String::new()];
        for line in text.split_inclusive('\n') {
            if line.trim_end() == SEPARATOR {
                sections.push(String::new());
            } else if let Some(section) = sections.last_mut() {
                section.push_str(line);
            }
        }
        let mut sections = sections.into_iter();
        let source = sections.next().unwrap_or_default();
        let expected = sections.next();
        if sections.next().is_some() {
            return Err(format!("{name}: more than one line `{SEPARATOR}`"));
        }
        let header: String = source
            .split_inclusive('\n')
            .take_while(|l| l.starts_with("//"))
            .collect();
        let body = source[header.len()..].to_owned();
        let directives = header.lines().filter_map(directive).collect();
        Ok(Self {
            path,
            name,
            header,
            body,
            expected,
            directives,
        })
    }

    /// The source as it stands in the file, comments included, so that lines of diagnostics are right.
    pub(crate) fn source(&self) -> String {
        format!("{}{}", self.header, self.body)
    }

    /// The file's name without folder and extension.
    pub(crate) fn stem(&self) -> String {
        self.path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// The values of a header, in order.
    pub(crate) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.directives
            .iter()
            .filter(move |(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// The value of a header.
    pub(crate) fn get<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        self.all(key).next()
    }

    /// Refuses headers that are not among `known`, and a missing or stray expectation.
    pub(crate) fn check(&self, known: &[&str], expects: bool) -> Result<(), String> {
        let stray: Vec<_> = self
            .directives
            .iter()
            .map(|(k, _)| k.as_str())
            .filter(|k| !known.contains(k))
            .collect();
        if !stray.is_empty() {
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(format!(
                "unknown headers: {}; known here: {known}",
                stray.join(", ")
            ));
        }
        if self.expected.is_some() && !expects {
            return Err(format!("cases of this folder have no `{SEPARATOR}`"));
        }
        Ok(())
    }

    /// The file with another expectation.
    pub(crate) fn with_expected(&self, expected: &str) -> String {
        format!("{}{SEPARATOR}\n{expected}", self.source())
    }
}

/// `// key: value`, where the key is one lower-case word; all else is prose.
fn directive(line: &str) -> Option<(String, String)> {
    let (key, value) = line.strip_prefix("// ")?.split_once(": ")?;
    let is_key = !key.is_empty() && key.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    is_key.then(|| (key.to_owned(), value.trim().to_owned()))
}

/// The harness refuses what would otherwise be a test that tests nothing.
pub(crate) fn refuses_what_nobody_reads(_: &[Case]) -> Result<(), String> {
    let read = |text: &str| Case::from_text(PathBuf::new(), "x".to_owned(), text);
    let case = read("// Prose: with a colon.\n// dims: B = 2\n// dims: B = 3\ngraph\n----\nout\n")?;
    let runs: Vec<_> = case.all("dims").collect();
    let checks = [
        ("prose is no header", case.get("Prose").is_none()),
        ("headers are read in order", runs == ["B = 2", "B = 3"]),
        (
            "source and expectation are told apart",
            case.body == "graph\n" && case.expected.as_deref() == Some("out\n"),
        ),
        (
            "a known header is accepted",
            case.check(&["dims"], true).is_ok(),
        ),
        (
            "an unknown header is refused",
            case.check(&["seed"], true).is_err(),
        ),
        (
            "a stray expectation is refused",
            case.check(&["dims"], false).is_err(),
        ),
        (
            "two expectations are refused",
            read("a\n----\nb\n----\nc\n").is_err(),
        ),
        (
            "blessing changes the expectation only",
            case.with_expected("new\n") == format!("{}----\nnew\n", case.source()),
        ),
    ];
    let wrong: Vec<_> = checks
        .iter()
        .filter(|(_, good)| !good)
        .map(|(what, _)| *what)
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(format!("not so: {}", wrong.join("; ")))
    }
}
