//! Builds one SQL text from several steps.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::database::{OfFirst, Rows, Sql, Step, Value};

/// The form of a SQL text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// A statement per step; see [`text_of`].
    Steps,
    /// A single statement; see [`one_statement`].
    One,
}

/// The maximum number of cached texts. A full cache is cleared, so that rare texts do not stay for ever.
const MAX_TEXTS: usize = 1_000;

/// The SQL text of the steps. The parameters are numbered over all statements.
pub(crate) fn text_of(steps: &[Step<'_>]) -> Arc<str> {
    kept(steps, Form::Steps, || {
        let mut text = Text::default();
        for step in steps {
            text.push_step(step);
            text.sql.push(';');
        }
        text.sql
    })
}

/// Combines the steps into one statement. `None` unless the first step changes one row and the other steps insert rows that
/// refer to that row. The statement returns the number of rows that the first step changed. If the first step changed no row,
/// the statement inserts nothing.
pub(crate) fn one_statement<'a>(steps: &[Step<'a>]) -> Option<(Arc<str>, Vec<Value<'a>>)> {
    let (first, others) = steps.split_first().filter(|(first, _)| first.changes == 1)?;
    let others: Vec<(&Rows, &OfFirst, &Step<'_>)> = others.iter().map(of_first).collect::<Option<_>>()?;
    let mut values = first.values.clone();
    for (rows, of_first, step) in &others {
        let rows = step.values.chunks(rows.parameters);
        values.extend(rows.flat_map(|row| row.iter().skip(of_first.key).copied()));
    }
    let text = kept(steps, Form::One, || {
        let mut text = Text { sql: "WITH first AS (".to_owned(), count: 0 };
        text.push_step(first);
        text.sql.push_str(" RETURNING id)");
        for (place, (rows, of_first, step)) in others.iter().enumerate() {
            let head = rows.head.trim_end().trim_end_matches("VALUES");
            // Writing to a text does not fail.
            let _ = write!(text.sql, ", step_{place} AS ({head} SELECT first.id, of_first.* FROM first, (VALUES");
            text.push_rows(of_first.row, step.changes);
            text.sql.push_str(") AS of_first");
            text.sql.push_str(rows.tail);
            text.sql.push(')');
        }
        text.sql.push_str(" SELECT count(*) FROM first");
        text.sql
    });
    Some((text, values))
}

fn of_first<'s, 'a>(step: &'s Step<'a>) -> Option<(&'static Rows, &'static OfFirst, &'s Step<'a>)> {
    let Sql::Rows(rows) = step.sql else { return None };
    Some((rows, rows.of_first.as_ref()?, step))
}

/// Returns the cached text for steps of these shapes, or builds it.
fn kept(steps: &[Step<'_>], form: Form, make: impl FnOnce() -> String) -> Arc<str> {
    type Texts = HashMap<(Form, Vec<(usize, usize)>), Arc<str>>;
    static TEXTS: LazyLock<Mutex<Texts>> = LazyLock::new(Mutex::default);
    let shapes: Vec<_> = steps.iter().map(Step::shape).collect();
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if texts.len() >= MAX_TEXTS {
        texts.clear();
    }
    Arc::clone(texts.entry((form, shapes)).or_insert_with(|| make().into()))
}

/// A SQL text under construction. Its parameters are `$1`, `$2` and so on.
#[derive(Default)]
struct Text {
    sql: String,
    /// Number of parameters so far.
    count: usize,
}

impl Text {
    fn push_step(&mut self, step: &Step<'_>) {
        match step.sql {
            Sql::Whole(sql) => self.push(sql),
            Sql::Rows(rows) => {
                self.sql.push_str(rows.head);
                self.push_rows(rows.row, step.changes);
                self.sql.push_str(rows.tail);
            }
        }
    }

    fn push_rows(&mut self, row: &str, count: u64) {
        for place in 0..count {
            self.sql.push_str(if place == 0 { " " } else { ", " });
            self.push(row);
        }
    }

    /// Appends SQL whose parameters count from `$1`. In the text, their numbers continue those of the SQL before.
    fn push(&mut self, sql: &str) {
        for (index, piece) in sql.split('$').enumerate() {
            if index == 0 {
                self.sql.push_str(piece);
                continue;
            }
            let digits = piece.len() - piece.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = piece.split_at(digits);
            debug_assert!(number == index.to_string(), "parameter {number} is out of order: {sql}");
            self.count += 1;
            let _ = write!(self.sql, "${}{rest}", self.count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ROWS: Rows = Rows {
        head: "INSERT INTO a VALUES",
        row: "($1, $2)",
        parameters: 2,
        tail: "",
        of_first: Some(OfFirst { key: 1, row: "($1)" }),
    };
    static FIRST: Rows =
        Rows { head: "INSERT INTO b VALUES", row: "($1)", parameters: 1, tail: " RETURNING b", of_first: None };

    fn values(count: i64) -> Vec<Value<'static>> {
        (0..count).map(Value::Int).collect()
    }

    #[test]
    fn parameters_count_on_from_statement_to_statement() {
        let steps = [
            Step::rows(&ROWS, values(4)),
            Step::new("UPDATE b SET c = $1 WHERE d = $2", values(2)),
            Step::rows(&FIRST, values(1)),
        ];
        let text = "INSERT INTO a VALUES ($1, $2), ($3, $4);UPDATE b SET c = $5 WHERE d = $6;INSERT INTO b VALUES ($7) \
                    RETURNING b;";
        assert_eq!(&*text_of(&steps), text);
        assert_eq!(steps.map(|step| step.changes), [2, 1, 1]);
    }

    #[test]
    fn rows_that_refer_to_the_first_step_are_merged_into_its_statement() {
        let first = || Step::new("UPDATE b SET c = $1 WHERE d = $2", values(2));
        let (text, values) = one_statement(&[first(), Step::rows(&ROWS, values(4))]).unwrap();
        let expected = "WITH first AS (UPDATE b SET c = $1 WHERE d = $2 RETURNING id), step_0 AS (INSERT INTO a  SELECT \
                        first.id, of_first.* FROM first, (VALUES ($3), ($4)) AS of_first) SELECT count(*) FROM first";
        assert_eq!(&*text, expected);
        let numbers = values.into_iter().map(|value| if let Value::Int(number) = value { number } else { -1 });
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 1, 1, 3], "the keys of the rows are left out");
        assert!(one_statement(&[first(), first()]).is_none());
    }
}
