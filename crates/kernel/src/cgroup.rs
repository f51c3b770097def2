//! Control groups, version 1 and 2.
