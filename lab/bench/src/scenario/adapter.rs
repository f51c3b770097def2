//! Rows that name an adapter instead of a command.

use gleaner_proto::source_text::{SourceText, unknown};

use crate::adapters::{ADAPTERS, Adapter, Expanded};
use crate::experiment::Expression;

use super::error::At as _;
use super::file::RowFile;
use super::{ScenarioError, expression, words};

/// A row's adapter, with the row's parameters.
pub(super) struct RowAdapter {
    pub(super) adapter: &'static Adapter,
    pub(super) expanded: Expanded,
    pub(super) expressions: Vec<Expression>,
}

/// The adapter of `row`, which starts at the byte `start`; `None` if it names none.
pub(super) fn of(
    text: &SourceText<'_>,
    start: usize,
    row: &RowFile,
) -> Result<Option<RowAdapter>, ScenarioError> {
    let Some(name) = &row.adapter else { return Ok(None) };
    if row.workload.is_some() || !row.command.is_empty() || row.shell.is_some() || row.prepare.is_some() {
        let message = "an `adapter` says itself what is prepared and run";
        return Err(text.invalid(start, message));
    }
    let Some(adapter) = Adapter::find(name.get_ref()) else {
        let known = ADAPTERS.iter().map(|adapter| adapter.name);
        let message = unknown("adapter", name.get_ref(), known);
        return Err(text.unknown(name.span().start, message));
    };
    let expanded = adapter.expand(&words(&row.parameters));
    let expanded = expanded.map_err(|error| text.invalid(name.span().start, &error.to_string()))?;
    let expressions = adapter.expressions.iter().map(|known| expression(text, name.span().start, known));
    let expressions = expressions.collect::<Result<_, _>>()?;
    Ok(Some(RowAdapter { adapter, expanded, expressions }))
}
