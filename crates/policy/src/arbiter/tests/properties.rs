//! What holds for any sequence of observations, whoever makes them.
