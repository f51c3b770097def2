//! The daemon's control interface `io.gleaner.Control`: its types, the daemon's side ([`Server`]) and the clients'
//! ([`Client`]). It is a Varlink interface, described in `io.gleaner.Control.varlink` ([`DESCRIPTION`]), so that any
//! Varlink client can use it (`varlinkctl`, `varlink`).
//!
//! The messages are written here and not by a Varlink crate. `varlink` (13.0) hands each call to a handler that has to
//! write all of its replies before it returns, cannot say who the caller is, and reads without a bound; its clients wait
//! without a timeout. `zlink` (0.8) needs an asynchronous runtime on both sides. Here one thread also controls the
//! machine, so that no client may make it wait or fill its memory. A test holds the description and the messages against
//! `varlink` and `varlink_parser`.

mod call;
mod client;
mod error;
mod limits;
mod peer;
mod server;
mod status;
mod wire;

pub use call::{
    AttachReply, AttachRequest, Call, CallId, DetachRequest, ForgetReply, ForgetRequest, MetricsReply,
    Nothing, PauseRequest, ReloadReply, StatusReply, To, WhyReply, WhyRequest,
};
pub use client::{Client, ClientError, HangUp, Replies};
pub use error::Error;
pub use limits::Limits;
pub use peer::Peer;
pub use server::{BindError, Event, Reason, Refusal, Server};
pub use status::{Decision, Machine, Mode, Retention, Stake, State, Status, Usage, Workload};
pub use wire::{DESCRIPTION, INTERFACE};

/// Where the daemon listens.
pub const SOCKET: &str = "/run/gleaner/control.sock";
/// The group whose members are allowed to read.
pub const GROUP: &str = "gleaner";
