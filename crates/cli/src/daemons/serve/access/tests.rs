//! The rights of hosts by configuration and commands together.

use tyche_proto::crypto::SecretKey;

use super::super::config;
use super::*;
use crate::shared::host::AddedHost;

#[test]
fn hosts_that_may_connect_are_named_with_what_commands_have_decided() {
    let dir = tempfile::tempdir().unwrap();
    let names = |names: &[&str]| Some(names.iter().map(|it| Name::new(it).unwrap()).collect());
    let uuid = Uuid::from_u128(7);
    let allowed = [
        ("all", Allowed::default()),
        ("named", Allowed { names: names(&["alpha", "beta"]), ..Allowed::default() }),
        ("numbered", Allowed { uuids: Some([uuid].into()), ..Allowed::default() }),
    ];
    let keys =
        ["alpha", "beta"].map(|name| (SecretKey::generate().public(), Name::new(name).unwrap()));
    let configured = Configured {
        access: Access { required: true, hosts: keys.into(), ..Access::default() },
        allowed: allowed.map(|(name, it)| (name.to_owned(), it)).into(),
        initiators: BTreeMap::from([("named".to_owned(), vec![Wwn(5)])]),
        has_fcoe: true,
    };
    let mut decisions = Decisions::load(dir.path().join("access.json")).unwrap();
    for export in ["all", "named"] {
        decisions.set(export, "alpha", Some(Decision::Denied)).unwrap();
    }
    let rights = Rights::new("store", configured, decisions);
    let all = rights.may_connect("all");
    assert_eq!((all.hosts, all.ports), (None, None));
    assert_eq!(all.except, ["alpha"]);
    let named = rights.may_connect("named");
    assert_eq!((named.hosts, named.except), (Some(vec!["beta".to_owned()]), vec![]));
    assert_eq!(named.ports, Some(vec![Wwn(5).to_string()]));
    assert_eq!(rights.may_connect("numbered").hosts, Some(vec![uuid.to_string()]));
}

#[test]
fn a_host_that_was_added_has_only_what_names_it() {
    let [own, alpha, node] = [1, 2, 3].map(|it| SecretKey::from_random([it; 32]).public());
    let host = |name: &str, key| AddedHost {
        name: name.to_owned(),
        key,
        iops: None,
        bytes_per_second: None,
    };
    let export = |text: &str, allow: &[&str]| Export {
        place: DefinedAt::Command,
        allow: (!allow.is_empty()).then(|| allow.iter().map(|&it| it.to_owned()).collect()),
        ..Export::parse(text).unwrap()
    };
    let config = Config {
        host: vec![config::Host::parse(&format!("alpha={alpha}")).unwrap()],
        added_hosts: vec![host("node1", node)],
        idle_hosts: vec![(host("node2", own), "its key is another's".to_owned())],
        export: vec![export("all=mem:1M", &[]), export("named=mem:1M", &["node1", "node2"])],
        ..Config::default()
    };
    let dir = tempfile::tempdir().unwrap();
    let decisions = Decisions::load(dir.path().join("access.json")).unwrap();
    let configured = |config: &Config| Configured::of(config, &[own]);
    let mut rights = Rights::new("store", configured(&config).unwrap(), decisions);
    let access = rights.access();
    assert!(access.hosts.len() == 2 && access.required, "the idle one is not let in");
    let node1 = Name::new("node1").unwrap();
    assert_eq!(access.only_named, [node1].into());
    let may = |rights: &Rights, export: &str| rights.allowed_at(export).names_host(&node1);
    assert!(!may(&rights, "all") && may(&rights, "named"));
    let who = Who::Host(HostId::Name(node1));
    assert!(!rights.configured.lists("all", who) && rights.configured.lists("named", who));
    rights.decisions.set("all", "node1", Some(Decision::Allowed)).unwrap();
    rights.decisions.set("named", "node1", Some(Decision::Denied)).unwrap();
    rights.forget_granted();
    assert!(may(&rights, "all"), "no configuration lets it in");
    assert_eq!(rights.may_connect("all").hosts, None);
    assert_eq!(rights.may_connect("all").also, ["node1"]);
    rights.forget_allowed("node1").unwrap();
    assert!(!may(&rights, "all") && rights.has_decided("named"), "it stays denied");
    // The file stands alone: it names hosts of its own.
    let place = DefinedAt::File { path: "target.toml".into(), line: 1 };
    let of_file = Export { place, ..export("x=mem:1M", &["node1"]) };
    let error = configured(&Config { export: vec![of_file], ..config.clone() }).err().unwrap();
    assert!(error.message.contains("no [[host]] `node1`; one that was added"), "{error}");
    let unknown = export("x=mem:1M", &["node3"]);
    let error = configured(&Config { export: vec![unknown], ..config }).err().unwrap();
    assert!(error.message.contains("no host `node3`: add it"), "{error}");
}

#[test]
fn a_denied_host_that_is_not_configured_any_more_stays_denied() {
    let (access, allowed, initiators) = Default::default();
    let configured = Configured { access, allowed, initiators, has_fcoe: false };
    let alpha = Name::new("alpha").unwrap();
    let decided = |decision| configured.decided("alpha", decision);
    assert_eq!(decided(Decision::Denied), Some(Who::Host(HostId::Name(alpha))));
    assert_eq!(decided(Decision::Allowed), None, "it has no key");
}
