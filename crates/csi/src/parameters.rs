//! Parameters of a storage class, and what nodes get of them.

use std::collections::{BTreeMap, HashMap};

use tonic::Status;

use crate::ids::TargetId;

/// Prefix of parameters that orchestrators add by themselves, such as the name of a claim.
const FOREIGN: &str = "csi.storage.k8s.io/";
/// The parameter with the links over which nodes connect.
const LINKS: &str = "links";
/// Links of a volume at most.
const LINKS_MAX: usize = 16;
/// Maximum length of a value.
const VALUE_MAX: usize = 512;

/// Parameters that are options of `tyche connect` with a number.
const NUMBERS: [(&str, &str); 7] = [
    ("channels", "--channels"),
    ("ctrlLossTmo", "--ctrl-loss-tmo"),
    ("fastIoFailTmo", "--fast-io-fail-tmo"),
    ("keepAliveTmo", "--keep-alive-tmo"),
    ("queueSize", "--queue-size"),
    ("queues", "--queues"),
    ("timeout", "--timeout"),
];
/// Parameters that are options of `tyche connect` without a value.
const FLAGS: [(&str, &str); 1] = [("growable", "--growable")];
/// Parameters that are options of `tyche export add`, and can be changed by `tyche export set`.
const LIMITS: [(&str, &str, &str); 2] =
    [("iops", "--iops", "iops"), ("bytesPerSecond", "--bytes-per-second", "bytes_per_second")];

/// The parameters of a storage class, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) target: TargetId,
    /// The pool in which volumes are made.
    pub(crate) pool: String,
    /// Options of `tyche export add`, which limit requests or say how the disk is.
    pub(crate) add: Vec<String>,
    /// The parameters that nodes need to connect: the context of a volume.
    pub(crate) context: HashMap<String, String>,
}

impl Parameters {
    /// Checks the parameters of a request.
    ///
    /// # Errors
    /// `InvalidArgument`: one is unknown, missing or malformed.
    pub(crate) fn parse(given: &HashMap<String, String>) -> Result<Self, Status> {
        let wrong = |message: String| Status::invalid_argument(format!("parameters: {message}"));
        let needed = |name: &str| {
            let value = given.get(name).map(String::as_str).filter(|it| !it.is_empty());
            value.ok_or_else(|| wrong(format!("`{name}` is missing")))
        };
        let target = TargetId::new(needed("target")?, needed("targetKey")?).map_err(wrong)?;
        let pool = needed("pool")?.to_owned();
        let (mut add, mut context) = (Vec::new(), HashMap::new());
        // In order, so that the same again is the same.
        for (name, value) in given.iter().collect::<BTreeMap<_, _>>() {
            if name.starts_with(FOREIGN) || ["target", "targetKey", "pool"].contains(&&name[..]) {
                continue;
            }
            let limit = LIMITS.iter().find(|it| it.0 == name);
            if value.len() > VALUE_MAX {
                return Err(wrong(format!("`{name}` is longer than {VALUE_MAX} bytes")));
            } else if let Some((_, option, _)) = limit {
                add.push(format!("{option}={value}"));
            } else if name == "blockSize" {
                add.push(format!("--block-size={value}"));
            } else if name == "writeBack" {
                add.extend(flag(name, value).map_err(wrong)?.then(|| "--write-back".to_owned()));
            } else {
                connect_option(name, value).map_err(wrong)?;
                context.insert(name.clone(), value.clone());
            }
        }
        Ok(Self { target, pool, add, context })
    }
}

/// The options of `tyche connect` for a volume with that context.
///
/// # Errors
/// `InvalidArgument`: one is unknown or malformed.
pub(crate) fn connect_options(context: &HashMap<String, String>) -> Result<Vec<String>, Status> {
    let mut options = Vec::new();
    for (name, value) in context.iter().collect::<BTreeMap<_, _>>() {
        // What provisioners add to a context begins with names of their own.
        if !name.contains('/') {
            let option = connect_option(name, value);
            options.extend(option.map_err(|error| {
                Status::invalid_argument(format!("context of the volume: {error}"))
            })?);
        }
    }
    Ok(options)
}

/// The options of `tyche connect` for one parameter.
fn connect_option(name: &str, value: &str) -> Result<Vec<String>, String> {
    if name == LINKS {
        return links(value);
    }
    if let Some((_, option)) = NUMBERS.iter().find(|it| it.0 == name) {
        let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
        let wrong = || format!("`{name}`: `{value}` is no number");
        return is_number.then(|| vec![format!("{option}={value}")]).ok_or_else(wrong);
    }
    if let Some((_, option)) = FLAGS.iter().find(|it| it.0 == name) {
        return Ok(flag(name, value)?.then(|| (*option).to_owned()).into_iter().collect());
    }
    Err(format!("`{name}` is unknown"))
}

fn links(value: &str) -> Result<Vec<String>, String> {
    let links: Vec<_> = value.split(',').map(str::trim).collect();
    let is_link = |link: &&str| {
        let is_of_link = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:[]%@".contains(&byte);
        !link.is_empty() && !link.starts_with('-') && link.bytes().all(is_of_link)
    };
    if links.len() > LINKS_MAX || !links.iter().all(is_link) {
        return Err(format!(
            "`{LINKS}`: write interfaces of the nodes, or udp:HOST, tcp:HOST or rdma:HOST with \
             commas between them, {LINKS_MAX} at most"
        ));
    }
    Ok(links.iter().map(|link| format!("--link={link}")).collect())
}

fn flag(name: &str, value: &str) -> Result<bool, String> {
    value.parse().map_err(|_| format!("`{name}`: write true or false"))
}

/// The arguments of `tyche export set` for mutable parameters.
///
/// # Errors
/// `InvalidArgument`: one can't be changed.
pub(crate) fn settings(mutable: &HashMap<String, String>) -> Result<Vec<String>, Status> {
    let setting = |(name, value): (&String, &String)| {
        let known = LIMITS.iter().find(|it| it.0 == name).filter(|_| value.len() <= VALUE_MAX);
        let known = known.map(|(_, _, key)| format!("{key}={value}"));
        let message = || format!("`{name}` can't be changed; iops and bytesPerSecond can");
        known.ok_or_else(|| Status::invalid_argument(message()))
    };
    mutable.iter().collect::<BTreeMap<_, _>>().into_iter().map(setting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> HashMap<String, String> {
        entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn class(more: &[(&str, &str)]) -> Result<Parameters, Status> {
        let key = format!("tyche_{}", "k".repeat(43));
        let common = [("target", "s@h"), ("targetKey", &key), ("pool", "fast")];
        Parameters::parse(&map(&[&common, more].concat()))
    }

    #[test]
    fn parameters_are_for_the_target_or_for_nodes() {
        let found = class(&[
            ("links", "udp:10.0.0.1:8650, eth1"),
            ("ctrlLossTmo", "-1"),
            ("growable", "true"),
            ("iops", "1000"),
            ("bytesPerSecond", "200M"),
            ("blockSize", "4096"),
            ("writeBack", "false"),
            ("csi.storage.k8s.io/pvc/name", "data"),
        ])
        .unwrap();
        assert_eq!(found.pool, "fast");
        let add = ["--block-size=4096", "--bytes-per-second=200M", "--iops=1000"];
        assert_eq!(found.add, add);
        let options =
            ["--ctrl-loss-tmo=-1", "--growable", "--link=udp:10.0.0.1:8650", "--link=eth1"];
        assert_eq!(connect_options(&found.context).unwrap(), options);
        let provisioned = map(&[("storage.kubernetes.io/csiProvisionerIdentity", "1-csi")]);
        assert!(connect_options(&provisioned).unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        let said = |more: &[(&str, &str)]| class(more).unwrap_err().message().to_owned();
        for (more, word) in [
            (("pool", ""), "`pool` is missing"),
            (("target", "h"), "NAME@HOST"),
            (("targetKey", "tyche_x"), "tyche key show"),
            (("links", "--tab"), "udp:HOST"),
            (("links", "eth0,,eth1"), "udp:HOST"),
            (("links", "a b"), "udp:HOST"),
            (("queues", "many"), "no number"),
            (("growable", "maybe"), "true or false"),
            (("colour", "red"), "`colour` is unknown"),
        ] {
            assert!(said(&[more]).contains(word), "{more:?}: {}", said(&[more]));
        }
        assert!(connect_options(&map(&[("pool", "fast")])).is_err());
    }

    #[test]
    fn limits_can_be_changed_and_nothing_else() {
        let made = settings(&map(&[("iops", "none"), ("bytesPerSecond", "1G")])).unwrap();
        assert_eq!(made, ["bytes_per_second=1G", "iops=none"]);
        let error = settings(&map(&[("pool", "slow")])).unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn the_example_of_a_storage_class_is_one() {
        let manifest = include_str!("../../../packaging/kubernetes/storage-class.yaml");
        let section = manifest.split_once("parameters:\n").unwrap().1.split_once("---").unwrap().0;
        let entries = section.lines().map(|line| line.trim().split_once(": ").unwrap());
        let given = entries.map(|(name, value)| (name.to_owned(), value.trim_matches('"').into()));
        assert_eq!(Parameters::parse(&given.collect()).unwrap().pool, "fast");
    }

    #[test]
    fn every_parameter_is_documented() {
        let text = include_str!("../../../docs/kubernetes.md");
        let numbers = NUMBERS.iter().map(|it| it.0);
        let limits = LIMITS.iter().map(|it| it.0);
        let others = ["target", "targetKey", "pool", LINKS, "blockSize", "writeBack"];
        for name in numbers.chain(limits).chain(FLAGS.iter().map(|it| it.0)).chain(others) {
            assert!(text.contains(&format!("`{name}`")), "docs/kubernetes.md lacks `{name}`");
        }
    }
}
