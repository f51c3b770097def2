//! The daemon's control interface.
