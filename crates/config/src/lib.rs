//! The daemon's configuration.
