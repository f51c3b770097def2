//! Varlink's messages: JSON objects, each followed by a NUL byte (<https://varlink.org/Method-Call>).

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call::WatchRequest;
use crate::{Call, CallId, Error, Peer, To};

/// The interface's name.
pub const INTERFACE: &str = "io.gleaner.Control";
/// Its description, in Varlink's interface definition language.
pub const DESCRIPTION: &str = include_str!("io.gleaner.Control.varlink");

/// The interface that every Varlink service has.
const SERVICE: &str = "org.varlink.service";
const SERVICE_DESCRIPTION: &str = include_str!("org.varlink.service.varlink");

/// The interval of `Watch` if the caller names none.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// The methods that only read, and those of introspection; all others change something.
const READING: [&str; 6] = ["Status", "Why", "Watch", "Metrics", "GetInfo", "GetInterfaceDescription"];
/// The methods with several replies.
const STREAMING: [&str; 3] = ["Why", "Watch", "Attach"];

/// A request, without its NUL byte.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) method: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    more: Option<bool>,
    #[serde(default)]
    oneway: Option<bool>,
    #[serde(default)]
    upgrade: Option<bool>,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Introspection: these are the reply's parameters.
    Introspection(Value),
    /// `Watch`, at this interval.
    Watch(Duration),
    /// Something that the daemon has to do.
    Daemon(Call),
}

impl Message {
    /// # Errors
    /// This is no request, whatever its method.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether the caller wants no reply.
    pub(crate) fn oneway(&self) -> bool {
        self.oneway == Some(true)
    }

    /// What it asks for. The daemon's answer goes to `id`.
    ///
    /// # Errors
    /// The method does not exist, `peer` is not allowed to use it, or its parameters are not as declared.
    pub(crate) fn asked(self, peer: &Peer, id: CallId) -> Result<Asked, Error> {
        let (interface, name) = self.method.rsplit_once('.').unwrap_or(("", &self.method));
        check_right(peer, interface, name)?;
        if self.upgrade == Some(true) {
            return Err(Error::MethodNotImplemented { method: self.method });
        }
        match interface {
            SERVICE => introspection(name, self.parameters).map(Asked::Introspection),
            INTERFACE if STREAMING.contains(&name) && (self.more != Some(true) || self.oneway()) => {
                Err(Error::ExpectedMore {})
            }
            INTERFACE => control(name, self.parameters, id),
            _ => Err(Error::InterfaceNotFound { interface: interface.to_owned() }),
        }
    }
}

fn check_right(peer: &Peer, interface: &str, name: &str) -> Result<(), Error> {
    let reads = READING.contains(&name);
    if peer.can_change() || (peer.can_read() && (reads || interface != INTERFACE)) {
        return Ok(());
    }
    let who = if reads { "root and the members of its group" } else { "root" };
    Err(Error::PermissionDenied { reason: format!("`{name}` is for {who}, and you are user {}", peer.uid) })
}

fn introspection(method: &str, parameters: Value) -> Result<Value, Error> {
    #[derive(Deserialize)]
    struct Of {
        interface: String,
    }
    match method {
        "GetInfo" => Ok(json!({
            "vendor": "Gleaner",
            "product": "gleanerd",
            "version": env!("CARGO_PKG_VERSION"),
            "url": "",
            "interfaces": [SERVICE, INTERFACE],
        })),
        "GetInterfaceDescription" => {
            let Of { interface } = arguments(parameters)?;
            let description = match interface.as_str() {
                SERVICE => SERVICE_DESCRIPTION,
                INTERFACE => DESCRIPTION,
                _ => return Err(Error::InterfaceNotFound { interface }),
            };
            Ok(json!({ "description": description }))
        }
        _ => Err(Error::MethodNotFound { method: format!("{SERVICE}.{method}") }),
    }
}

fn control(method: &str, parameters: Value, id: CallId) -> Result<Asked, Error> {
    let call = match method {
        "Status" => nothing(parameters).map(|()| Call::Status(To::new(id))),
        "Why" => arguments(parameters).map(|request| Call::Why(request, To::new(id))),
        "Watch" => {
            let WatchRequest { interval_ms } = arguments(parameters)?;
            return Ok(Asked::Watch(interval_ms.map_or(DEFAULT_INTERVAL, Duration::from_millis)));
        }
        "Attach" => arguments(parameters).map(|request| Call::Attach(request, To::new(id))),
        "Detach" => arguments(parameters).map(|request| Call::Detach(request, To::new(id))),
        "Pause" => arguments(parameters).map(|request| Call::Pause(request, To::new(id))),
        "Resume" => nothing(parameters).map(|()| Call::Resume(To::new(id))),
        "Forget" => arguments(parameters).map(|request| Call::Forget(request, To::new(id))),
        "Reload" => nothing(parameters).map(|()| Call::Reload(To::new(id))),
        "Metrics" => nothing(parameters).map(|()| Call::Metrics(To::new(id))),
        _ => Err(Error::MethodNotFound { method: format!("{INTERFACE}.{method}") }),
    };
    call.map(Asked::Daemon)
}

fn nothing(parameters: Value) -> Result<(), Error> {
    arguments::<crate::call::Nothing>(parameters).map(|_| ())
}

/// A method without parameters can be called with none, `null` or an empty object.
fn arguments<T: DeserializeOwned>(parameters: Value) -> Result<T, Error> {
    let parameters = if parameters.is_null() { json!({}) } else { parameters };
    serde_json::from_value(parameters)
        .map_err(|error| Error::InvalidParameter { parameter: error.to_string() })
}

/// Appends a reply, and whether others follow.
pub(crate) fn append_reply<R: Serialize>(output: &mut Vec<u8>, parameters: &R, continues: bool) {
    #[derive(Serialize)]
    struct Reply<'a, R> {
        parameters: &'a R,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        continues: bool,
    }
    append(output, &Reply { parameters, continues });
}

/// Appends a message. What JSON cannot hold, which none of ours does, becomes an error reply.
pub(crate) fn append<T: Serialize>(output: &mut Vec<u8>, message: &T) {
    let start = output.len();
    if let Err(error) = serde_json::to_writer(&mut *output, message) {
        output.truncate(start);
        let reason = format!("the reply cannot be written as JSON: {error}");
        let _ = serde_json::to_writer(&mut *output, &Error::Failed { reason });
    }
    output.push(0);
}
