//! The workloads of a machine.
