//! The rows of a sweep as a table.

use super::{Axis, Row, SHARES, Value};
use crate::table::{Cells, Table};

/// A column for each axis, then those of the program and of its VM (`vm_…`).
pub fn table(axes: &[Axis], rows: &[Row]) -> Table {
    let mut table = Table::default();
    table.column("point", Cells::integers(rows, |r| r.point as u64));
    for (index, axis) in axes.iter().enumerate() {
        table.column(&axis.key, values(axis, index, rows));
    }
    table.column("vm", Cells::texts(rows, |r| r.vm.clone()));
    table.column("program", Cells::texts(rows, |r| r.program.clone()));
    table.column("end", Cells::texts(rows, |r| r.end.clone()));
    table.column("elapsed_ns", Cells::integers(rows, |r| r.elapsed_ns));
    let finished = rows.iter().map(|r| r.totals.finished.and_then(|ns| i64::try_from(ns).ok()));
    table.column("finished_ns", Cells::Integers(finished.collect()));
    table.column("operations", Cells::integers(rows, |r| r.totals.operations));
    table.column("operations_per_s", Cells::floats(rows, |r| r.operations_per_s));
    table.column("cpu_ns", Cells::integers(rows, |r| r.totals.cpu));
    table.column("run_delay_ns", Cells::integers(rows, |r| r.totals.run_delay));
    table.column("switches", Cells::integers(rows, |r| r.totals.switches));
    table.column("wakes", Cells::integers(rows, |r| r.totals.wakes));
    table.column("wake_us", Cells::floats(rows, |r| r.wake_us));
    table.column("vm_halts_per_s_and_vcpu", Cells::floats(rows, |r| r.halts_per_s));
    table.column("vm_interrupts", Cells::integers(rows, |r| r.interrupts));
    table.column("vm_lock_holders_preempted", Cells::integers(rows, |r| r.lock_holders_preempted));
    table.column("vm_pause_exits", Cells::integers(rows, |r| r.pause_exits));
    table.column("vm_host_cpu_ns", Cells::integers(rows, |r| r.host_cpu_ns));
    for (index, (name, _)) in SHARES.iter().enumerate() {
        table.column(&format!("vm_{name}"), Cells::floats(rows, |r| r.shares[index]));
    }
    table.column("vm_lock_spin", Cells::floats(rows, |r| r.lock_spin));
    table.column("vm_tlb_spin", Cells::floats(rows, |r| r.tlb_spin));
    table
}

/// An axis's values in these rows: as numbers if all values of the axis are, so that the type of the column depends on
/// the axis alone.
fn values(axis: &Axis, index: usize, rows: &[Row]) -> Cells {
    let integer = |v: &Value| if let Value::Integer(n) = v { Some(*n) } else { None };
    let float = |v: &Value| match v {
        Value::Integer(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        Value::Bool(_) | Value::Text(_) => None,
    };
    let all = rows.iter().map(|row| &row.values[index]);
    if axis.values.iter().all(|v| integer(v).is_some()) {
        Cells::Integers(all.map(integer).collect())
    } else if axis.values.iter().all(|v| float(v).is_some()) {
        Cells::Floats(all.map(float).collect())
    } else {
        Cells::Texts(all.map(|v| Some(v.plain())).collect())
    }
}
