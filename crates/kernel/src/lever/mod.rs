//! The levers: what can be changed, and how each change is undone.
