//! The daemon's metrics.
