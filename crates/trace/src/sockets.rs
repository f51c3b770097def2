//! What a workload's threads send and receive through sockets. `/proc/PID/io` leaves out `send` and `recv`.

use std::fmt;
use std::mem::MaybeUninit;

use gleaner_kernel::Root;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{IterOpts, MapHandle, OpenObject};

use crate::attach::Attachment;
use crate::load::BTF;
use crate::read::sum;
use crate::scope::{Resolved, Scope, set_scope};
use crate::sockets_skeleton::{OpenSocketsSkel, SocketsSkelBuilder, types};
use crate::tracer::TraceError;
use crate::unavailable::{NotAvailable, Reason, Rights, from_load, text};
use crate::waiting::run_through;

/// Traffic through sockets in a time span.
///
/// A message is a call that moved at least one byte (`sock_sendmsg_nosec` and `sock_recvmsg_nosec` in the kernel's
/// `net/socket.c`), by any system call: read and write, send and recv with their variants, `io_uring`, and the sending
/// end of sendfile and splice. Not counted: calls that failed or found nothing, empty datagrams, peeked data
/// (`MSG_PEEK`), and splicing *from* a TCP or unix stream socket, which bypasses these functions. On a stream a message
/// is limited by the caller's buffer only, so the number of messages depends on how much had piled up; the number of
/// bytes does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketTraffic {
    /// Calls that sent something.
    pub sent_messages: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Calls that received something.
    pub received_messages: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

/// What to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directions {
    /// Only sent messages: one program, which runs on half of the calls or fewer.
    Sent,
    /// Sent and received messages.
    Both,
}

/// Counts socket traffic with a short program (`src/bpf/sockets.bpf.c`) at each of the tracepoints `sock_send_length`
/// and `sock_recv_length`, which Linux has since 6.3. While it is armed, every message on the machine takes some 0.1 us
/// longer. Dropping it detaches the programs, as does the end of the process. It can be made in one thread and read in
/// another.
pub struct SocketSensor {
    /// Finds the new threads of a process tree.
    _on_fork: Option<Attachment>,
    /// Attached while it is armed.
    counting: Vec<Attachment>,
    traffic: MapHandle,
    /// Counters at the latest reading.
    last: types::traffic,
}

impl fmt::Debug for SocketSensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketSensor").field("armed", &self.is_armed()).finish_non_exhaustive()
    }
}

impl SocketSensor {
    /// Prepares to count what the threads of `scope` send and receive; not armed yet. Takes tens of milliseconds of CPU
    /// time, mostly for the kernel's types.
    ///
    /// # Errors
    /// There is no such scope, or counting is not possible here.
    pub fn load(scope: &Scope, directions: Directions) -> Result<Self, TraceError> {
        libbpf_rs::set_print(None);
        let root = Root::system();
        let scope = scope.resolve(&root)?;
        let loaded = load(&scope, directions).map_err(|error| refused(&root, &error))?;
        Ok(loaded)
    }

    /// Loads it and counts from now on.
    ///
    /// # Errors
    /// See [`SocketSensor::load`].
    pub fn start(scope: &Scope, directions: Directions) -> Result<Self, TraceError> {
        let mut sensor = Self::load(scope, directions)?;
        sensor.arm()?;
        Ok(sensor)
    }

    /// Counts from now on, unless it does already. The kernel patches its code and interrupts every vCPU for less than a
    /// millisecond.
    ///
    /// # Errors
    /// The programs cannot be attached.
    pub fn arm(&mut self) -> Result<(), NotAvailable> {
        if self.is_armed() {
            return Ok(());
        }
        let root = Root::system();
        self.last = self.counted().map_err(|error| refused(&root, &error))?;
        let mut programs = self.counting.iter_mut();
        programs.try_for_each(Attachment::attach).map_err(|error| refused(&root, &error.into()))
    }

    /// Stops counting until it is armed again; nothing takes longer meanwhile.
    pub fn disarm(&mut self) {
        self.counting.iter_mut().for_each(Attachment::detach);
    }

    /// The traffic since it was armed or the last call; `None` if the counters cannot be read. One system call, about a
    /// microsecond.
    pub fn read(&mut self) -> Option<SocketTraffic> {
        let now = self.counted().ok()?;
        let last = std::mem::replace(&mut self.last, now);
        Some(SocketTraffic {
            sent_messages: now.sent_messages.saturating_sub(last.sent_messages),
            sent_bytes: now.sent_bytes.saturating_sub(last.sent_bytes),
            received_messages: now.received_messages.saturating_sub(last.received_messages),
            received_bytes: now.received_bytes.saturating_sub(last.received_bytes),
        })
    }

    fn is_armed(&self) -> bool {
        self.counting.iter().all(Attachment::is_attached)
    }

    fn counted(&self) -> libbpf_rs::Result<types::traffic> {
        sum(&self.traffic, &0_u32)
    }
}

fn load(scope: &Resolved, directions: Directions) -> libbpf_rs::Result<SocketSensor> {
    // Programs and map stand on their own; the rest, including the kernel's types, is freed when this function returns.
    let mut place = MaybeUninit::uninit();
    let is_tree = scope.is_tree();
    let mut open = open(scope, &mut place)?;
    open.progs.on_receive.set_autoload(directions == Directions::Both);
    open.progs.on_fork.set_autoload(is_tree);
    open.progs.first_pass.set_autoload(is_tree);
    let skel = open.load()?;
    let progs = &skel.progs;
    let mut on_fork = None;
    if is_tree {
        // New threads must be recognised before existing ones are listed.
        on_fork.insert(Attachment::new(&progs.on_fork)?).attach()?;
        run_through(&progs.first_pass.attach_iter_with_opts(IterOpts::None)?)?;
    }
    let mut counting = vec![Attachment::new(&progs.on_send)?];
    if directions == Directions::Both {
        counting.push(Attachment::new(&progs.on_receive)?);
    }
    let traffic = MapHandle::try_from(&skel.maps.traffic)?;
    Ok(SocketSensor { _on_fork: on_fork, counting, traffic, last: types::traffic::default() })
}

fn open<'a>(
    scope: &Resolved,
    place: &'a mut MaybeUninit<OpenObject>,
) -> libbpf_rs::Result<OpenSocketsSkel<'a>> {
    let mut open = SocketsSkelBuilder::default().open(place)?;
    set_scope!(open, scope);
    Ok(open)
}

fn refused(root: &Root, error: &libbpf_rs::Error) -> NotAvailable {
    let why = missing(root).unwrap_or_else(|| from_load("sockets", error.kind(), text(error), Rights::now()));
    NotAvailable::new("traffic through sockets", why)
}

/// What the kernel lacks, if that is the reason.
fn missing(root: &Root) -> Option<Reason> {
    let path = root.path(BTF);
    let Ok(btf) = Btf::from_path(&path) else {
        return Some(Reason::NoBtf { path: path.to_string_lossy().into_owned() });
    };
    let lacks = |name: &&&str| btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{name}")).is_none();
    let event = ["sock_send_length", "sock_recv_length"].iter().find(lacks)?;
    Some(Reason::NoEvent { event: format!("tracepoint {event} (Linux 6.3)") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_types_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(missing(&Root::at(dir.path())), Some(Reason::NoBtf { .. })));
    }

    #[test]
    fn it_can_go_from_thread_to_thread() {
        fn is_sent<T: Send + 'static>() {}
        is_sent::<SocketSensor>();
    }
}
