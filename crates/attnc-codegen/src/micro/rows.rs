//! What the attention tiles have in common: the types of one number a row, and the functions of `mods` by rows.

use std::fmt;

/// The types of so many rows, 1 to 4: a number, or a vector.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowTypes(pub(super) u32);

impl RowTypes {
    /// A constructor with one argument a row.
    pub(super) fn per_row(self, of: &str, f: impl Fn(u32) -> String) -> String {
        if self.0 == 1 {
            return f(0);
        }
        let arguments: String = (0..self.0)
            .map(|r| format!("        {},\n", f(r)))
            .collect();
        format!("{of}(\n{arguments}    )")
    }

    /// `name` if there is one row, else `name[r]`.
    pub(super) fn row(self, name: &str, r: u32) -> String {
        if self.0 == 1 {
            name.to_owned()
        } else {
            format!("{name}[{r}]")
        }
    }
}

impl fmt::Display for RowTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vector = |of: &str| match self.0 {
            1 => of.to_owned(),
            n => format!("vec{n}<{of}>"),
        };
        writeln!(f, "alias Rows = {}; // one number a row", vector("f32"))?;
        writeln!(f, "alias RowIndex = {};", vector("u32"))?;
        writeln!(f, "alias RowMask = {};", vector("bool"))
    }
}

/// `rows_score_mod` and its like: each function of `mods`, applied to every row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowFunctions {
    /// Rows of an invocation.
    pub(super) rows: u32,
    /// Whether the rows may be of several heads, so that `h` is one number a row.
    pub(super) heads: bool,
    /// Whether `mods` has a `prob_mod`.
    pub(super) prob_mod: bool,
    /// Whether `mods` has a `sink`.
    pub(super) sink: bool,
}

impl RowFunctions {
    /// The functions it needs of `mods`, separated by commas.
    pub(super) fn imports(&self) -> String {
        let mut functions = vec!["mask_mod", "score_mod"];
        if self.prob_mod {
            functions.push("prob_mod");
        }
        if self.sink {
            functions.push("sink");
        }
        functions.join(", ")
    }

    pub(super) fn print(&self) -> String {
        let types = RowTypes(self.rows);
        let (head, h): (_, Box<dyn Fn(u32) -> String>) = if self.heads {
            ("RowIndex", Box::new(move |r| types.row("h", r)))
        } else {
            ("u32", Box::new(|_| "h".to_owned()))
        };
        let at = |r| format!("b, {}, {}", h(r), types.row("q_idx", r));
        let of_key = |name: &'static str, x: &'static str| {
            types.per_row("Rows", |r| {
                format!("{name}({}, {}, kv_idx)", types.row(x, r), at(r))
            })
        };
        let mask = types.per_row("RowMask", |r| format!("mask_mod({}, kv_idx)", at(r)));
        let prob = match self.prob_mod {
            true => of_key("prob_mod", "p"),
            false => "p".to_owned(),
        };
        let sink = match self.sink {
            true => types.per_row("Rows", |r| {
                format!("sink({}, {})", types.row("m", r), at(r))
            }),
            false => "Rows(0.0)".to_owned(),
        };
        format!(
            "\
alias HeadIndex = {head};

fn rows_score_mod(score: Rows, b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> Rows {{
    return {};
}}

fn rows_mask_mod(b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> RowMask {{
    return {mask};
}}

fn rows_prob_mod(p: Rows, b: u32, h: HeadIndex, q_idx: RowIndex, kv_idx: u32) -> Rows {{
    return {prob};
}}

fn rows_sink(m: Rows, b: u32, h: HeadIndex, q_idx: RowIndex) -> Rows {{
    return {sink};
}}

",
            of_key("score_mod", "score"),
        )
    }
}
