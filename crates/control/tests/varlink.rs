//! Another implementation of Varlink understands the interface: its parser the description, its client the server.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, RwLock};

use common::{Daemon, raw, status};
use gleaner_control::{AttachReply, AttachRequest, DESCRIPTION, Error, INTERFACE, WhyRequest};
use gleaner_proto::journal::Summary;
use serde_json::{Value, json};
use varlink::{Connection, MethodCall, OrgVarlinkServiceClient, OrgVarlinkServiceInterface as _};
use varlink_parser::{Argument, IDL, VStruct, VStructOrEnum, VType, VTypeExt};

fn connect(daemon: &Daemon) -> Arc<RwLock<Connection>> {
    Connection::with_address(&format!("unix:{}", daemon.path.display())).unwrap()
}

type Method = MethodCall<Value, Value, varlink::Error>;

fn method(connection: &Arc<RwLock<Connection>>, name: &str, parameters: Value) -> Method {
    Method::new(Arc::clone(connection), format!("{INTERFACE}.{name}"), parameters)
}

fn description() -> IDL<'static> {
    IDL::try_from(DESCRIPTION).map_err(|error| error.to_string()).unwrap()
}

/// What is wrong with `value`, as a `declared`.
fn check(idl: &IDL<'_>, declared: &VTypeExt<'_>, value: &Value, place: &str) -> Result<(), String> {
    let fits = match declared {
        VTypeExt::Option(_) if value.is_null() => true,
        VTypeExt::Option(some) => return check(idl, some, value, place),
        VTypeExt::Array(of) => {
            let items = value.as_array().ok_or_else(|| format!("{place}: no array"))?;
            return items.iter().try_for_each(|item| check(idl, of, item, &format!("{place}[]")));
        }
        VTypeExt::Dict(_) => false,
        VTypeExt::Plain(VType::Bool) => value.is_boolean(),
        VTypeExt::Plain(VType::Int) => value.is_i64() || value.is_u64(),
        VTypeExt::Plain(VType::Float) => value.is_f64(),
        VTypeExt::Plain(VType::String) => value.is_string(),
        VTypeExt::Plain(VType::Object) => value.is_object(),
        VTypeExt::Plain(VType::Struct(fields)) => return check_fields(idl, fields, value, place),
        VTypeExt::Plain(VType::Enum(names)) => names.elts.iter().any(|name| value == name),
        VTypeExt::Plain(VType::Typename(name)) => match &idl.typedefs[name].elt {
            VStructOrEnum::VStruct(fields) => return check_fields(idl, fields, value, place),
            VStructOrEnum::VEnum(names) => names.elts.iter().any(|name| value == name),
        },
    };
    fits.then_some(()).ok_or_else(|| format!("{place}: {value} has another type"))
}

/// All fields must be there, and no other.
fn check_fields(idl: &IDL<'_>, declared: &VStruct<'_>, value: &Value, place: &str) -> Result<(), String> {
    let fields = value.as_object().ok_or_else(|| format!("{place}: {value} is no object"))?;
    let names: BTreeSet<_> = declared.elts.iter().map(|field| field.name).collect();
    let found: BTreeSet<_> = fields.keys().map(String::as_str).collect();
    if names != found {
        return Err(format!("{place}: declared are {names:?}, there are {found:?}"));
    }
    declared.elts.iter().try_for_each(|Argument { name, vtype }| {
        check(idl, vtype, &fields[*name], &format!("{place}.{name}"))
    })
}

#[track_caller]
fn assert_declared(declared: &VStruct<'_>, value: &Value) {
    check_fields(&description(), declared, value, "").unwrap();
}

#[test]
fn the_description_is_what_a_client_gets_and_a_parser_reads() {
    let daemon = Daemon::start();
    let mut service = OrgVarlinkServiceClient::new(connect(&daemon));
    let info = service.get_info().unwrap();
    assert_eq!((info.product.as_ref(), info.interfaces.len()), ("gleanerd", 2));
    for interface in info.interfaces {
        let text = service.get_interface_description(interface.clone()).unwrap().description.unwrap();
        let idl = IDL::try_from(text.as_str()).map_err(|error| error.to_string()).unwrap();
        assert_eq!(idl.name, interface);
        let undocumented: Vec<_> =
            idl.methods.values().filter(|m| m.doc.is_empty()).map(|m| m.name).collect();
        assert_eq!(undocumented, Vec::<&str>::new());
    }
    assert!(service.get_interface_description("io.gleaner.Other").is_err());
    assert_eq!(daemon.seen().refusals, Vec::<String>::new());
}

#[test]
fn every_method_of_the_description_exists_and_its_replies_are_as_declared() {
    let daemon = Daemon::start();
    let idl = description();
    let connection = connect(&daemon);
    for (name, declared) in &idl.methods {
        let parameters = match *name {
            "Attach" => json!({"name": "a"}),
            "Detach" => json!({"workload": "a"}),
            _ => json!({}),
        };
        // `Attach` and `Watch` go on for ever, so each method has a connection of its own.
        let own = connect(&daemon);
        let mut call = method(&own, name, parameters.clone());
        let first = match *name {
            "Why" | "Watch" | "Attach" => call.more().unwrap().next().unwrap(),
            _ => call.call(),
        };
        match first {
            Ok(reply) => check_fields(&idl, &declared.output, &reply, name).unwrap(),
            // The test's daemon refuses these.
            Err(error) => assert!(["Reload", "Detach"].contains(name), "{name}: {error}"),
        }
        let unknown = method(&connection, name, json!({"unknown": 1})).call().unwrap_err();
        let kind = unknown.kind();
        let expected = match *name {
            "Why" | "Watch" | "Attach" => matches!(kind, varlink::ErrorKind::VarlinkErrorReply(_)),
            _ => matches!(kind, varlink::ErrorKind::InvalidParameter(what) if what.contains("unknown")),
        };
        assert!(expected, "{name}: {unknown:?}");
    }
    let missing = method(&connection, "Missing", json!({})).call().unwrap_err();
    assert!(matches!(missing.kind(), varlink::ErrorKind::MethodNotFound(_)), "{missing:?}");
    let elsewhere = MethodCall::<Value, Value, varlink::Error>::new(connection, "a.b.C", json!({})).call();
    assert!(matches!(elsewhere.unwrap_err().kind(), varlink::ErrorKind::InterfaceNotFound(_)));
}

#[test]
fn types_are_as_declared_with_and_without_their_optional_parts() {
    let idl = description();
    let replies = &idl.methods["Status"].output;
    assert_declared(replies, &json!({ "status": status() }));
    let mut empty = status();
    empty.workloads.clear();
    empty.mode_reason = Some("why".to_owned());
    assert_declared(replies, &json!({ "status": empty }));
    let attach = &idl.methods["Attach"];
    let summary = Some(Summary::default());
    let reply = AttachReply { workload: "a".to_owned(), limits: vec!["b".to_owned()], summary };
    assert_declared(&attach.output, &serde_json::to_value(reply).unwrap());
    assert_declared(&attach.input, &serde_json::to_value(AttachRequest::default()).unwrap());
    let full = json!({"pid": 1, "cgroup": "a", "name": "b", "objective": "latency", "consolidate": true,
        "retain": false, "progress": "file:x", "memory": true});
    assert_declared(&attach.input, &full);
    serde_json::from_value::<AttachRequest>(full).unwrap();
    assert_declared(&idl.methods["Why"].input, &serde_json::to_value(WhyRequest::default()).unwrap());
}

#[test]
fn errors_are_as_declared() {
    let s = || "x".to_owned();
    let errors = [
        Error::not_found("workload", "x", Some(s())),
        Error::PermissionDenied { reason: s() },
        Error::AlreadyControlled { workload: s() },
        Error::NotSupported { reason: s() },
        Error::InvalidRequest { reason: s() },
        Error::InvalidConfiguration { reason: s() },
        Error::NothingRecorded {},
        Error::Busy { reason: s() },
        Error::failed("x"),
    ];
    let idl = description();
    let mut names = BTreeSet::new();
    for error in errors {
        let value = serde_json::to_value(&error).unwrap();
        let name = value["error"].as_str().unwrap().strip_prefix("io.gleaner.Control.").unwrap().to_owned();
        assert_declared(&idl.errors[name.as_str()].parm, &value["parameters"]);
        assert_eq!(serde_json::from_value::<Error>(value).unwrap(), error);
        names.insert(name);
    }
    assert_eq!(names, idl.errors.keys().map(ToString::to_string).collect());
}

#[test]
fn a_stream_of_another_client() {
    let daemon = Daemon::start();
    let connection = connect(&daemon);
    let mut call = method(&connection, "Why", json!({"workload": "redis-server"}));
    let records: Vec<_> = call.more().unwrap().map(Result::unwrap).collect();
    assert_eq!(records.len(), 4);
    assert_eq!(records[0]["record"]["record"], "start");
    // The connection can be used again.
    method(&connection, "Pause", json!({"reason": null})).call().unwrap();
    method(&connection, "Resume", Value::Null).call().unwrap();
}

/// The messages of one connection until the server closes it.
fn talk(path: &Path, requests: &str) -> Vec<Value> {
    let stream = raw(path, requests.replace('\n', "\0").as_bytes());
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let text = std::io::read_to_string(stream).unwrap();
    text.split_terminator('\0').map(|message| serde_json::from_str(message).unwrap()).collect()
}

#[test]
fn requests_that_do_not_wait_are_answered_in_their_order() {
    let daemon = Daemon::start();
    let replies = talk(
        &daemon.path,
        "{\"method\":\"io.gleaner.Control.Metrics\"}\n\
         {\"method\":\"io.gleaner.Control.Pause\",\"parameters\":{\"reason\":\"b\"},\"oneway\":true}\n\
         {\"method\":\"io.gleaner.Control.Why\",\"more\":true}\n\
         {\"method\":\"io.gleaner.Control.Watch\"}\n\
         {\"method\":\"io.gleaner.Control.Pause\",\"upgrade\":true}\n\
         {\"method\":\"org.varlink.service.GetInfo\",\"parameters\":null}\n\
         {\"method\":\"nothing\"}\n",
    );
    let short: Vec<_> = replies
        .iter()
        .map(|reply| match &reply["error"] {
            Value::String(error) => error.rsplit('.').next().unwrap().to_owned(),
            _ if reply["continues"] == true => "continues".to_owned(),
            _ => reply["parameters"].as_object().unwrap().keys().next().unwrap().clone(),
        })
        .collect();
    assert_eq!(
        short,
        [
            "text",
            "continues",
            "continues",
            "continues",
            "record",
            "ExpectedMore",
            "MethodNotImplemented",
            "interfaces",
            "InterfaceNotFound"
        ]
    );
    assert_eq!(daemon.seen().paused.as_deref(), Some("b"));
}
