//! Frames and CPU time of the daemons, summed over their lives.

use serde::Serialize;
use serde_json::Value;

/// Frames of one interface.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct LinkTraffic {
    pub(super) interface: String,
    pub(super) frames_sent: u64,
    pub(super) frames_received: u64,
}

/// Traffic of one daemon, summed over its lives.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Traffic {
    pub(super) frames_sent: u64,
    pub(super) frames_received: u64,
    pub(super) retransmitted: u64,
    /// CPU time of the daemon, user and system, in seconds.
    pub(super) cpu_s: f64,
    /// The frames by interface.
    pub(super) links: Vec<LinkTraffic>,
}

impl Traffic {
    /// Adds the figures of `tyche stats` for a session or target.
    pub(super) fn add(&mut self, stats: &Value) {
        let count = |value: &Value| value.as_u64().unwrap_or_default();
        self.retransmitted += count(&stats["channel"]["retransmitted"]);
        for link in stats["links"].as_array().map_or(&[][..], Vec::as_slice) {
            let interface = link["interface"].as_str().unwrap_or_default();
            self.add_frames(interface, count(&link["tx_frames"]), count(&link["rx_frames"]));
            self.retransmitted += count(&link["channel"]["retransmitted"]);
        }
        self.cpu_s += stats["cpu_s"].as_f64().unwrap_or_default();
    }

    /// Adds the traffic of an earlier life.
    pub(super) fn add_earlier(&mut self, earlier: &Self) {
        for LinkTraffic { interface, frames_sent, frames_received } in &earlier.links {
            self.add_frames(interface, *frames_sent, *frames_received);
        }
        self.retransmitted += earlier.retransmitted;
        self.cpu_s += earlier.cpu_s;
    }

    fn add_frames(&mut self, interface: &str, sent: u64, received: u64) {
        self.frames_sent += sent;
        self.frames_received += received;
        let known = self.links.iter().position(|link| link.interface == interface);
        let index = known.unwrap_or_else(|| {
            self.links.push(LinkTraffic { interface: interface.to_owned(), ..Default::default() });
            self.links.len() - 1
        });
        self.links[index].frames_sent += sent;
        self.links[index].frames_received += received;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counters_are_summed_over_links_and_lives() {
        let mut traffic = Traffic::default();
        let session = json!({
            "channel": { "retransmitted": 3 }, "cpu_s": 0.5,
            "links": [
                { "interface": "a", "tx_frames": 10, "rx_frames": 20 },
                { "interface": "b", "tx_frames": 1, "rx_frames": 2 },
            ],
        });
        let target = json!({
            "links": [{
                "interface": "a", "tx_frames": 5, "rx_frames": 6, "channel": { "retransmitted": 4 }
            }],
        });
        traffic.add(&session);
        traffic.add(&target);
        let twice = &mut Traffic::default();
        twice.add_earlier(&traffic);
        twice.add_earlier(&traffic);
        for (traffic, times) in [(&traffic, 1), (&*twice, 2)] {
            assert_eq!(traffic.frames_sent, times * 16);
            assert_eq!(traffic.frames_received, times * 28);
            assert_eq!(traffic.retransmitted, times * 7);
            let links = traffic.links.iter().map(|it| (&*it.interface, it.frames_sent));
            assert_eq!(links.collect::<Vec<_>>(), [("a", times * 15), ("b", times)]);
        }
        assert_eq!(traffic.cpu_s, 0.5);
    }
}
