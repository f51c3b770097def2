//! From an error to the end of the program.

use std::error::Error;
use std::process::ExitCode;

use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};

use crate::{OutError, say};

/// Wrong usage that only the program itself can see, beyond what the definition of the command line says.
const USAGE: u8 = 2;

/// Wrong usage: the program ends with status 2 and this text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The command line; ends the program where there is no command to obey: after help, or with status 2.
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

/// Lets `--rounds -1` reach the option's own check, which says what it takes, rather than count as an unknown option.
fn negative_numbers(command: clap::Command) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(|argument| {
        let takes_value = !argument.is_positional() && argument.get_action().takes_values();
        if takes_value { argument.allow_negative_numbers(true) } else { argument }
    });
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, negative_numbers))
}

/// The end of `program` for an error that it cannot help, after everything else has been undone.
pub fn failure(program: &str, error: &(dyn Error + 'static)) -> ExitCode {
    if causes(error).any(|cause| matches!(cause.downcast_ref(), Some(OutError::Closed))) {
        return u8::try_from(end_by_sigpipe()).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    say!("{program}: {}", text(error));
    if causes(error).any(<dyn Error>::is::<Usage>) { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
}

/// An error as a sentence: what was being done, then why that failed. A message of this project's own holds its cause and
/// has no `source()`, so that nothing is said twice.
pub fn text(error: &(dyn Error + 'static)) -> String {
    causes(error).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'e (dyn Error + 'static)| error.source())
}

/// Ends the program as the kernel ends one that writes into a closed pipe. Rust's start-up code ignores the signal, and it
/// may be blocked; where it does not end the program, this is the status that a shell would have shown.
fn end_by_sigpipe() -> i32 {
    // SAFETY: the default action has no handler that could run.
    let default = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    if default.is_ok() && SigSet::from(Signal::SIGPIPE).thread_unblock().is_ok() {
        // It does not return.
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
    #[error("cannot begin")]
    struct Context(#[source] Own);

    #[test]
    fn a_cause_is_said_once() {
        let own = || Own { cause: io::Error::from_raw_os_error(2) };
        assert_eq!(text(&own()), "cannot read the file: No such file or directory (os error 2)");
        assert_eq!(
            text(&Context(own())),
            "cannot begin: cannot read the file: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn a_closed_output_is_no_failed_one() {
        assert!(matches!(OutError::from(io::Error::from(io::ErrorKind::BrokenPipe)), OutError::Closed));
        let full = OutError::from(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.to_string(), "cannot write to the standard output: no storage space");
    }
}
