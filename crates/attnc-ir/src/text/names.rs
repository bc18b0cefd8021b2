//! Names and strings: bare where they are made of `[A-Za-z0-9_./:-]`, quoted with escapes elsewhere.

use std::fmt::Write as _;

/// Whether a character may stand in a bare name.
pub(super) fn is_bare(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | ':' | '-')
}

/// The name with its sigil: `%x`, `%"x y"`. A bare name does not end with `:`, which belongs to a type.
#[must_use]
pub fn sigil_name(sigil: char, name: &str) -> String {
    if !name.is_empty() && name.chars().all(is_bare) && !name.ends_with(':') {
        format!("{sigil}{name}")
    } else {
        format!("{sigil}{}", quoted(name))
    }
}

/// The text as a string literal.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() || is_invisible(c) => {
                let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Characters that would turn the order of a line around, or hide: they are escaped.
fn is_invisible(c: char) -> bool {
    matches!(u32::from(c), 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f | 0xfeff)
}

/// Undoes the escapes between the quotes; else the byte offset of the first bad escape.
pub(super) fn unescape(body: &str) -> Result<String, usize> {
    let mut out = String::with_capacity(body.len());
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let (_, escape) = chars.next().ok_or(at)?;
        out.push(match escape {
            '"' | '\\' => escape,
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'u' => {
                let rest = body[at..].strip_prefix("\\u{").ok_or(at)?;
                let digits = &rest[..rest.find('}').ok_or(at)?];
                let code = u32::from_str_radix(digits, 16).map_err(|_| at)?;
                // The braces and digits are all single bytes, and digits were just read.
                chars.by_ref().nth(digits.len() + 1);
                char::from_u32(code).ok_or(at)?
            }
            _ => return Err(at),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_is_undone() {
        for text in [
            "",
            "a b",
            "say \"hi\"\\",
            "tab\tline\nend\r",
            "zero\u{0}\u{202e}é漢",
        ] {
            let quoted = quoted(text);
            assert_eq!(
                unescape(&quoted[1..quoted.len() - 1]).as_deref(),
                Ok(text),
                "{quoted}"
            );
            assert!(!quoted.contains(['\n', '\u{202e}']));
        }
        for bad in [
            "\\",
            "\\q",
            "\\u",
            "\\u{",
            "\\u{}",
            "\\u{d800}",
            "\\u{+1}x\\",
        ] {
            assert!(unescape(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_odd_names_are_quoted() {
        assert_eq!(
            sigil_name('%', "/layer.0/MatMul_output_0"),
            "%/layer.0/MatMul_output_0"
        );
        assert_eq!(sigil_name('%', "input:0"), "%input:0");
        assert_eq!(sigil_name('%', "input:"), "%\"input:\"");
        assert_eq!(sigil_name('@', ""), "@\"\"");
    }
}
