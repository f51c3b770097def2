//! What a control group is, by its path: the names that systemd, `OpenRC` and container runtimes give to groups.

use std::path::Path;

use crate::Kind;

/// What a control group is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A workload with all groups below it.
    Workload(Label),
    /// It only holds other groups, such as a slice.
    Inner,
    /// The group of systemd itself, or of a user's service manager: left alone.
    Manager,
    /// Nobody's pattern: a workload if it is a leaf.
    Unknown,
}

/// What a workload is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) kind: Kind,
    /// Neither unique nor clean yet, see [`Names`](crate::names::Names).
    pub(crate) name: String,
    /// The unit of systemd.
    pub(crate) unit: Option<String>,
}

/// Scopes that container runtimes make with systemd's help, by what stands before the container's ID.
const CONTAINER_SCOPES: [&str; 8] =
    ["docker-", "cri-containerd-", "crio-", "libpod-", "nerdctl-", "containerd-", "podman-", "machine-"];
/// Scopes of a runtime's monitor, which does not run in the container.
const MONITOR_SCOPES: [&str; 2] = ["crio-conmon-", "libpod-conmon-"];
/// Groups whose child groups are containers.
const CONTAINER_PARENTS: [&str; 6] = ["docker", "lxc", "lxc.payload", "libpod_parent", "ecs", "garden"];
/// As many digits of a container's ID as its tools show.
const ID_DIGITS: usize = 12;
/// As many digits of a pod's UID as distinguish it.
const UID_DIGITS: usize = 8;

/// What the group at `path`, within its hierarchy, is. Asked from the root down, so no group above it is a workload.
pub(crate) fn classify(path: &Path) -> Place {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy()) else { return Place::Inner };
    let name = name.as_ref();
    if let Some(slice) = name.strip_suffix(".slice") {
        return pod_of_slice(slice).map_or(Place::Inner, |pod| workload(Kind::Container, pod, Some(name)));
    }
    if let Some(service) = name.strip_suffix(".service") {
        return match (service.strip_prefix("user@"), service.strip_prefix("systemd-nspawn@")) {
            (Some(_), _) => Place::Inner,
            (_, Some(machine)) => workload(Kind::Container, machine.to_owned(), Some(name)),
            (None, None) => workload(Kind::Service, service.to_owned(), Some(name)),
        };
    }
    if let Some(scope) = name.strip_suffix(".scope") {
        return match container_of_scope(scope) {
            _ if scope == "init" => Place::Manager,
            Some(container) => workload(Kind::Container, container, Some(name)),
            None => workload(Kind::Scope, scope.to_owned(), Some(name)),
        };
    }
    of_other(path, name).unwrap_or(Place::Unknown)
}

/// The unit of systemd whose workload the processes of the group `path` are part of.
pub fn unit_of(path: &Path) -> Option<String> {
    let mut groups: Vec<&Path> = path.ancestors().collect();
    groups.reverse();
    groups.into_iter().find_map(|group| match classify(group) {
        Place::Workload(label) => Some(label.unit),
        _ => None,
    })?
}

fn workload(kind: Kind, name: String, unit: Option<&str>) -> Place {
    Place::Workload(Label { kind, name, unit: unit.map(str::to_owned) })
}

/// The kubelet's slices: `kubepods-burstable-pod<UID>.slice`, in a nested kubelet with more before it.
fn pod_of_slice(slice: &str) -> Option<String> {
    let (above, uid) = slice.rsplit_once("-pod")?;
    above.contains("kubepods").then(|| pod(uid))
}

fn pod(uid: &str) -> String {
    format!("pod-{}", first(uid, UID_DIGITS))
}

fn container_of_scope(scope: &str) -> Option<String> {
    if MONITOR_SCOPES.iter().any(|prefix| scope.starts_with(prefix)) {
        return None;
    }
    CONTAINER_SCOPES.iter().find_map(|prefix| {
        let id = scope.strip_prefix(prefix)?;
        Some(if *prefix == "machine-" { id.to_owned() } else { format!("{prefix}{}", short_id(id)) })
    })
}

/// Groups that no systemd made.
fn of_other(path: &Path, name: &str) -> Option<Place> {
    let mut above = path.components().rev().skip(1).map(|part| part.as_os_str().to_string_lossy());
    let parent = above.next().unwrap_or_default();
    if let Some(service) = name.strip_prefix("openrc.") {
        return Some(workload(Kind::Service, service.to_owned(), None));
    }
    if parent == "openrc" {
        return Some(workload(Kind::Service, name.to_owned(), None));
    }
    if let Some(container) = name.strip_prefix("lxc.payload.") {
        return Some(workload(Kind::Container, format!("lxc-{container}"), None));
    }
    if let Some(uid) = name.strip_prefix("pod")
        && (parent.starts_with("kubepods") || above.any(|name| name.starts_with("kubepods")))
    {
        return Some(workload(Kind::Container, pod(uid), None));
    }
    let runtime = CONTAINER_PARENTS.iter().find(|runtime| **runtime == parent)?;
    let runtime = runtime.split(['.', '_']).next().unwrap_or(runtime);
    let id = name.strip_prefix("libpod-").unwrap_or(name);
    Some(workload(Kind::Container, format!("{runtime}-{}", short_id(id)), None))
}

/// The start of what looks like a container's ID, else the whole name.
fn short_id(id: &str) -> &str {
    let is_id = id.len() > ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id { first(id, ID_DIGITS) } else { id }
}

fn first(text: &str, characters: usize) -> &str {
    text.char_indices().nth(characters).map_or(text, |(end, _)| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn of(path: &str) -> (Kind, String, Option<String>) {
        match classify(Path::new(&path.replace("<ID>", ID))) {
            Place::Workload(label) => (label.kind, label.name, label.unit),
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn units_of_systemd() {
        let service = |name: &str| (Kind::Service, name.to_owned(), Some(format!("{name}.service")));
        assert_eq!(of("/system.slice/redis-server.service"), service("redis-server"));
        let nested = "/system.slice/system-postgresql.slice/postgresql@15-main.service";
        assert_eq!(of(nested), service("postgresql@15-main"));
        let manager = "/user.slice/user-1000.slice/user@1000.service";
        assert_eq!(classify(Path::new(manager)), Place::Inner);
        assert_eq!(of(&format!("{manager}/app.slice/my.service")), service("my"));
        assert_eq!(classify(Path::new(&format!("{manager}/init.scope"))), Place::Manager);
        assert_eq!(classify(Path::new("/init.scope")), Place::Manager);
        let session = of("/user.slice/user-0.slice/session-3.scope");
        assert_eq!(session, (Kind::Scope, "session-3".to_owned(), Some("session-3.scope".to_owned())));
        for path in ["/", "/system.slice", "/user.slice/user-1000.slice"] {
            assert_eq!(classify(Path::new(path)), Place::Inner, "{path}");
        }
    }

    #[test]
    fn a_group_is_part_of_the_unit_above_it() {
        let unit = |path: &str| unit_of(Path::new(path));
        assert_eq!(unit("/system.slice/db.service/worker/1").as_deref(), Some("db.service"));
        assert_eq!(unit("/user.slice/user-0.slice/session-3.scope").as_deref(), Some("session-3.scope"));
        for path in ["/", "/mine", "/system.slice", "/openrc/nginx"] {
            assert_eq!(unit(path), None, "{path}");
        }
    }

    #[test]
    fn containers_of_every_runtime() {
        for (path, name) in [
            ("/system.slice/docker-<ID>.scope", "docker-0123456789ab"),
            ("/docker/<ID>", "docker-0123456789ab"),
            ("/machine.slice/libpod-<ID>.scope", "libpod-0123456789ab"),
            ("/libpod_parent/libpod-<ID>", "libpod-0123456789ab"),
            ("/machine.slice/machine-qemu\\x2d1\\x2dweb.scope", "qemu\\x2d1\\x2dweb"),
            ("/machine.slice/systemd-nspawn@debian.service", "debian"),
            ("/lxc.payload.web", "lxc-web"),
            ("/lxc.payload/web", "lxc-web"),
            ("/lxc/web", "lxc-web"),
            ("/ecs/<ID>", "ecs-0123456789ab"),
            ("/kubepods.slice/kubepods-pod0a1b2c3d_4e5f.slice", "pod-0a1b2c3d"),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b2c3d_4e5f.slice",
                "pod-0a1b2c3d",
            ),
            ("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort-pod9.slice", "pod-9"),
            ("/kubepods/besteffort/pod0a1b2c3d-4e5f", "pod-0a1b2c3d"),
            ("/kubepods/pod0a1b2c3d-4e5f", "pod-0a1b2c3d"),
        ] {
            let (kind, found, _) = of(path);
            assert_eq!((kind, found.as_str()), (Kind::Container, name), "{path}");
        }
        let monitor = of("/machine.slice/libpod-conmon-<ID>.scope");
        assert_eq!(monitor.0, Kind::Scope);
        assert_eq!(classify(Path::new("/kubepods.slice/kubepods-burstable.slice")), Place::Inner);
    }

    #[test]
    fn others() {
        assert_eq!(of("/openrc.nginx"), (Kind::Service, "nginx".to_owned(), None));
        assert_eq!(of("/openrc/nginx"), (Kind::Service, "nginx".to_owned(), None));
        for path in ["/docker", "/kubepods", "/kubepods/burstable", "/podium", "/mine", "/lxc.monitor.web"] {
            assert_eq!(classify(Path::new(path)), Place::Unknown, "{path}");
        }
        assert_eq!(first("añb", 2), "añ");
    }
}
