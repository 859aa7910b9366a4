//! Outages of the network: segments and links that carry no frames, or not all, for a while.

use std::time::Duration;

use tyche_proto::Rules;
use tyche_wire::ETHERNET_LEN;

use super::incidents::Incident;
use super::{Event, World};
use crate::network::{LinkRef, Port, Station};
use crate::trace::Happening;

/// The shortest MTU of a network of routers: that of IPv6.
const MTU_MIN: usize = 1280;

impl<R: Rules> World<R> {
    /// Draws a segment for an outage, if there is one that may have any.
    fn draw_segment(&mut self) -> Option<usize> {
        let steady = self.plan.incidents.steady;
        let segments = (0..self.network.segments()).filter(|&segment| Some(segment) != steady);
        let segments: Vec<_> = segments.collect();
        (!segments.is_empty()).then(|| self.random.pick(&segments))
    }

    pub(super) fn outage(&mut self, incident: Incident) -> Result<(), String> {
        if incident == Incident::Blackout {
            return self.black_out();
        }
        if incident == Incident::OneWay {
            self.lose_one_way();
            return Ok(());
        }
        let Some(segment) = self.draw_segment() else { return Ok(()) };
        match incident {
            Incident::MtuDrop => {
                self.report.narrowed += 1;
                let udp = self.network.udp(segment);
                let shortest = if udp.is_some() { MTU_MIN } else { 1500 };
                let mtu = self.random.pick(&[shortest, 1500, 4196, 9000]);
                self.note(Happening::Incident(format!("segment {segment}: MTU {mtu}")));
                let len = ETHERNET_LEN + mtu;
                let len = udp.map_or(len, |udp| udp.frame_len_max(len));
                self.network.set_frame_len_passed(segment, Some(len));
                for port in self.network.ports_on(segment) {
                    // Some have the MTU themselves, and say so; others have to find out.
                    if self.random.chance(0.3) {
                        self.network.set_frame_len_taken(port, Some(len));
                    }
                }
                self.plan_repair(segment);
                Ok(())
            }
            _ => {
                let times = self.random.pick(&[1, 1, 2, 5]);
                self.flap(segment, times)
            }
        }
    }

    /// Cuts a segment for a while, `times` times in a row.
    pub(super) fn flap(&mut self, segment: usize, times: u32) -> Result<(), String> {
        self.cut_segment(segment)?;
        let pauses: &[u64] = if times > 1 { &[1, 20, 100, 400] } else { &[1, 20, 200, 1500, 4000] };
        let pause = Duration::from_millis(self.random.pick(pauses));
        self.plan_in(pause, Event::Incident(Incident::Repair(segment)));
        if times > 1 {
            let up = Duration::from_millis(self.random.pick(&[1, 50, 300, 1000]));
            self.plan_in(pause + up, Event::Incident(Incident::Again(segment, times - 1)));
        }
        Ok(())
    }

    /// Cuts a segment. Some hosts see that their interfaces are down, others have to find out.
    fn cut_segment(&mut self, segment: usize) -> Result<(), String> {
        self.report.cuts += 1;
        self.note(Happening::Incident(format!("segment {segment} is down")));
        self.network.set_down(segment, true);
        for host in 0..self.hosts.len() {
            if self.random.chance(0.7) {
                continue;
            }
            for link in self.network.links_on(host, segment) {
                self.hosts[host].lose_carrier(self.now, link);
            }
            self.drive_host(host)?;
        }
        Ok(())
    }

    fn black_out(&mut self) -> Result<(), String> {
        if self.plan.incidents.steady.is_some() {
            return Ok(());
        }
        self.report.blackouts += 1;
        let pause = Duration::from_millis(self.random.pick(&[20, 400, 2500]));
        for segment in 0..self.network.segments() {
            self.cut_segment(segment)?;
            self.plan_in(pause, Event::Incident(Incident::Repair(segment)));
        }
        Ok(())
    }

    fn lose_one_way(&mut self) {
        let steady = self.plan.incidents.steady;
        let Some(port) = self.network.draw_port(&mut self.random, steady) else { return };
        let most: &[f64] = if steady.is_some() { &[1.0] } else { &[1.0, 1.0, 0.5, 0.1] };
        let much = self.random.pick(most);
        let (mute, deaf) = self.random.pick(&[(much, 0.0), (0.0, much)]);
        self.report.one_ways += 1;
        let place = self.network.place(port);
        self.note(Happening::Incident(format!("{place} loses: sends {mute}, receives {deaf}")));
        self.network.set_one_way(port, mute, deaf);
        self.plan_repair(self.network.segment(port));
    }

    /// Gives a link of a host over UDP another address: what comes from the old one is no more for
    /// it, and the target does not know the new one.
    pub(super) fn rebind(&mut self) {
        let Some(port) = self.network.draw_udp_host(&mut self.random) else { return };
        self.report.rebinds += 1;
        let again = self.random.chance(0.5);
        self.network.rebind(port, again);
        let (place, mac) = (self.network.place(port), self.network.mac(port));
        self.note(Happening::Incident(format!("{place} has the address {mac} outside")));
    }

    /// Takes a link out of a session, and plans its return.
    pub(super) fn relink(&mut self) -> Result<(), String> {
        let steady = self.plan.incidents.steady;
        let Some(port) = self.network.draw_port(&mut self.random, steady) else { return Ok(()) };
        let LinkRef { station: Station::Host(host), link } = self.network.place(port) else {
            return Ok(());
        };
        let pause = Duration::from_millis(self.random.pick(&[0, 20, 500, 2500]));
        self.plan_in(pause, Event::Incident(Incident::Plug(host, link)));
        self.remove_link_of(host, link)
    }

    pub(super) fn remove_link_of(&mut self, host: usize, link: usize) -> Result<(), String> {
        if self.hosts[host].remove_link(self.now, link) {
            self.report.relinks += 1;
            self.note(Happening::Host { host, event: format!("does without link {link}") });
        }
        self.drive_host(host)
    }

    pub(super) fn add_link_to(&mut self, host: usize, link: usize) -> Result<(), String> {
        if self.hosts[host].add_link(self.now, link, &self.network) {
            self.note(Happening::Host { host, event: format!("uses link {link} again") });
        }
        self.drive_host(host)
    }

    fn plan_repair(&mut self, segment: usize) {
        let pause = Duration::from_millis(self.random.pick(&[1, 20, 200, 1500, 4000]));
        self.plan_in(pause, Event::Incident(Incident::Repair(segment)));
    }

    pub(super) fn repair(&mut self, segment: usize) {
        self.note(Happening::Incident(format!("segment {segment} is repaired")));
        self.network.repair(segment);
    }

    /// Draws whether a segment is cut before a fence, or the answer to one, leaves the port, or
    /// just after it.
    pub(super) fn cut_fence(&mut self, port: Port) {
        let segment = self.network.segment(port);
        let spared = self.calm || Some(segment) == self.plan.incidents.steady;
        if spared || !self.random.chance(self.plan.incidents.fence_cut) {
            return;
        }
        (self.report.fence_cuts, self.report.cuts) =
            (self.report.fence_cuts + 1, self.report.cuts + 1);
        let lasts = Duration::from_micros(self.random.pick(&[0, 1]));
        self.plan_in(lasts, Event::Incident(Incident::Again(segment, 1)));
        if lasts.is_zero() {
            self.network.set_down(segment, true);
        }
    }
}
