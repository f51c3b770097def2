//! Measurements: the cost of a wake-up on this machine, workloads whose threads wait for each other, and the
//! interleaved runner that compares ways to run them.

pub mod workload;

pub mod adapters;
pub mod client;
pub mod compare;
pub mod environment;
pub mod experiment;
pub mod mode;
pub mod promises;
pub mod runner;
pub mod scenario;
pub mod sensors;
pub mod servers;
pub mod shell;
pub mod signals;
pub mod stats;
pub mod steps;
pub mod suite;
