//! Ends a program with an error.

use std::error::Error;
use std::process::ExitCode;

use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};

use crate::{OutError, say};

/// The exit status for wrong usage, as clap has it.
const USAGE_STATUS: u8 = 2;

/// Wrong usage that only the program can detect: it ends with status 2 and this text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Parses the command line. Ends the program if there is no command to run: after help, or with status 2.
pub fn parse<C: clap::Parser>(program: &str) -> C {
    let command = negative_numbers(C::command());
    command.try_get_matches().and_then(|matches| C::from_arg_matches(&matches)).unwrap_or_else(|error| {
        if error.use_stderr() {
            error.exit();
        }
        // Help and version are output like any other.
        let status = match error.print().map_err(OutError::from) {
            Ok(()) => 0,
            Err(OutError::Closed) => end_by_sigpipe(),
            Err(failed) => {
                say!("{program}: {failed}");
                1
            }
        };
        std::process::exit(status)
    })
}

/// Passes `--rounds -1` to the option's own check, which names the valid values, instead of treating it as an
/// unknown option.
fn negative_numbers(command: clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(|argument| {
        let takes_value = !argument.is_positional() && argument.get_action().takes_values();
        if takes_value { argument.allow_negative_numbers(true) } else { argument }
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, negative_numbers))
}

/// The exit of `program` after an error, once everything else has been undone.
pub fn failure(program: &str, error: &(dyn Error + 'static)) -> ExitCode {
    if causes(error).any(|cause| matches!(cause.downcast_ref(), Some(OutError::Closed))) {
        return u8::try_from(end_by_sigpipe()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    say!("{program}: {}", text(error));
    if causes(error).any(<dyn Error>::is::<Usage>) { ExitCode::from(USAGE_STATUS) } else { ExitCode::FAILURE }
}

/// An error as a sentence: what was being done, then why that failed. This project's own messages contain their
/// cause and have no `source()`, so nothing is repeated.
pub fn text(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'e (dyn Error + 'static)| error.source())
}

/// Ends the program like a write to a closed pipe. Rust's start-up code ignores the signal, and it can be
/// blocked; if it does not end the program, returns the status that a shell would have shown.
fn end_by_sigpipe() -> i32 {
    // SAFETY: the default action installs no handler.
    let default = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    if default.is_ok() && SigSet::from(Signal::SIGPIPE).thread_unblock().is_ok() {
        // Does not return.
        let _ = raise(Signal::SIGPIPE);
    }
    128 + Signal::SIGPIPE as i32
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the file: {cause}")]
    struct Own {
        cause: io::Error,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Context(#[source] Own);

    #[test]
    fn a_cause_is_said_once() {
        let own = || Own { cause: io::Error::from_raw_os_error(2) };
        assert_eq!(text(&own()), "cannot read the file: No such file or directory (os error 2)");
        assert_eq!(
            text(&Context(own())),
            "cannot start: cannot read the file: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn a_closed_output_is_no_failed_one() {
        assert!(matches!(OutError::from(io::Error::from(io::ErrorKind::BrokenPipe)), OutError::Closed));
        let full = OutError::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.to_string(), "cannot write to the standard output: no storage space");
    }
}
