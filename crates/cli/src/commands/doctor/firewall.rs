//! Rules of nftables that drop what comes for a target over IP.

use std::collections::BTreeSet;

use tyche_link::ip::DEFAULT_PORT;

use crate::shared::report::Finding;

use super::machine::Machine;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let ports = ports(machine);
    if ports.is_empty() {
        return Vec::new();
    }
    let Some(rules) = (machine.tool)("nft", &["list", "ruleset"]) else { return Vec::new() };
    let findings = ports.into_iter().filter_map(|(protocol, port)| {
        let chain = dropped(&rules, protocol, port)?;
        let what = format!("{chain} of nftables drops what comes for {protocol} port {port}");
        let remedy = format!("a rule before: `{protocol} dport {port} accept`");
        Some(Finding::warning("firewall-drops", what).remedy(remedy))
    });
    findings.collect()
}

/// The ports that targets of this machine listen at: protocol and number.
fn ports(machine: &Machine) -> BTreeSet<(&'static str, u16)> {
    let configured = machine.good_config().into_iter().flat_map(|config| &config.link);
    let served = machine.targets.iter().flat_map(|target| &target.links);
    let links = configured.chain(served.map(|link| &link.interface));
    let ports = links.filter_map(|link| {
        let (protocol, rest) = match link.split_once(':')? {
            ("udp", rest) => ("udp", rest),
            ("tcp", rest) => ("tcp", rest),
            _ => return None,
        };
        let port = rest.rsplit(':').next().and_then(|port| port.parse().ok());
        Some((protocol, port.unwrap_or(DEFAULT_PORT)))
    });
    ports.collect()
}

/// The chain that drops what comes for a port: by a rule for it, or by its policy if no rule of the
/// chain lets the port pass. Rules that jump elsewhere or name sets are taken as letting it pass.
fn dropped(rules: &str, protocol: &str, port: u16) -> Option<String> {
    let mut table = String::new();
    let mut chain: Option<Chain> = None;
    for line in rules.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("table ") {
            table = rest.trim_end_matches(" {").to_owned();
        } else if let Some(rest) = line.strip_prefix("chain ") {
            let name = format!("chain {} of table {table}", rest.trim_end_matches(" {"));
            chain = Some(Chain { name, ..Chain::default() });
        } else if line == "}" {
            if let Some(chain) = chain.take().filter(Chain::drops) {
                return Some(chain.name);
            }
        } else if let Some(chain) = &mut chain {
            chain.read(line, protocol, port);
        }
    }
    None
}

/// A chain, as far as it was read.
#[derive(Default)]
struct Chain {
    name: String,
    is_input: bool,
    drops_by_policy: bool,
    /// Whether a rule drops the port's packets, or lets them pass: the first one decides.
    decided: Option<bool>,
}

impl Chain {
    fn read(&mut self, line: &str, protocol: &str, port: u16) {
        if line.starts_with("type filter hook input") {
            self.is_input = true;
            self.drops_by_policy = line.contains("policy drop");
            return;
        }
        if self.decided.is_some() || !self.is_input {
            return;
        }
        let words: Vec<_> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
        let number = port.to_string();
        let is_for_port = words.contains(&"dport")
            && words.contains(&&*number)
            && (words.contains(&protocol) || words.contains(&"th"));
        let names_another = words.contains(&"dport") || words.contains(&"sport");
        let is_partial = words.iter().any(|word| {
            matches!(*word, "saddr" | "iif" | "iifname" | "ct" | "icmp" | "icmpv6" | "limit")
        });
        let drops = words.iter().any(|word| matches!(*word, "drop" | "reject"));
        let passes = words.contains(&"accept");
        if is_for_port && drops {
            self.decided = Some(true);
        } else if is_for_port && passes {
            self.decided = Some(false);
        } else if line.contains('@')
            || words.iter().any(|it| matches!(*it, "jump" | "goto" | "vmap"))
        {
            // It can't be told.
            self.decided = Some(false);
        } else if !names_another && !is_partial && (drops || passes) {
            let is_of_protocol =
                !words.contains(&"ip") && !words.contains(&"meta") || words.contains(&protocol);
            self.decided = is_of_protocol.then_some(drops);
        }
    }

    fn drops(&self) -> bool {
        self.is_input && self.decided.unwrap_or(self.drops_by_policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drops(rules: &str) -> bool {
        let head = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0; ";
        let text = format!("{head}{rules}\n\t}}\n}}\n");
        dropped(&text, "udp", 8650).is_some()
    }

    #[test]
    fn rules_are_read_in_their_order() {
        for rules in [
            "policy drop;",
            "policy drop;\nct state established accept\niif \"lo\" accept\ntcp dport 22 accept",
            "policy accept;\nudp dport 8650 drop",
            "policy accept;\nudp dport { 53, 8650 } reject",
            "policy accept;\ntcp dport 22 accept\ndrop",
        ] {
            assert!(drops(rules), "{rules}");
        }
        for rules in [
            "policy accept;",
            "policy drop;\nudp dport 8650 accept",
            "policy drop;\nudp dport { 53, 8650 } accept",
            "policy drop;\njump services",
            "policy drop;\nudp dport @services accept",
            "policy accept;\ntcp dport 8650 drop",
            "policy drop;\naccept",
        ] {
            assert!(!drops(rules), "{rules}");
        }
        assert_eq!(dropped("table ip nat {\n chain input {\n }\n}", "udp", 8650), None);
    }
}
