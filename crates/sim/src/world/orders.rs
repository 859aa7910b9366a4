//! Orders of directed scenarios, in place of the chance of a seed.

use std::time::Duration;

use tyche_proto::{Operation, Rules};

use super::World;
use super::freezer::Part;
use crate::network::Station;
use crate::plan::HostPlan;
use crate::report::Violation;

impl<R: Rules> World<R> {
    fn checked<T>(&self, result: Result<T, String>) -> Result<T, Box<Violation>> {
        result.map_err(|what| self.violation(what).into())
    }

    /// Has a host submit an operation.
    ///
    /// # Errors
    /// If the host cannot, or the violation that the checker found.
    pub fn request(&mut self, host: usize, operation: Operation) -> Result<(), Box<Violation>> {
        let result = self.submit_now(host, operation);
        self.checked(result)
    }

    /// Adds a host that begins a session at once; returns its index.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn join(&mut self, plan: HostPlan) -> Result<usize, Box<Violation>> {
        let result = self.add_host(plan);
        self.checked(result)
    }

    /// Kills a host.
    pub fn kill_host(&mut self, host: usize) {
        self.crash_host(host);
    }

    /// Kills the program that serves a host's device; the device waits for another session.
    pub fn kill_program(&mut self, host: usize) {
        self.kill_daemon(host);
    }

    /// Has a host begin a session if it has none: one that takes its device over if there is one.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn begin_session(&mut self, host: usize) -> Result<(), Box<Violation>> {
        let result = self.start(host);
        self.checked(result)
    }

    /// Has a host end its session.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn disconnect(&mut self, host: usize) -> Result<(), Box<Violation>> {
        let result = self.disconnect_host(host);
        self.checked(result)
    }

    /// Kills the target, with the cache of its disk if it has one and `lossy` says so.
    pub fn kill_target(&mut self, lossy: bool) {
        self.crash_target(lossy);
    }

    /// Starts the target if it does not serve.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn start_target(&mut self) -> Result<(), Box<Violation>> {
        let result = self.restart_target();
        self.checked(result)
    }

    /// Kills the target as soon as its disk has executed another modifying request, and before the
    /// request is answered; it comes back by itself.
    pub fn kill_target_unanswered(&mut self) {
        self.dies_unanswered = true;
    }

    /// Gives the target's links other addresses; if `elsewhere`, each is also plugged in at its
    /// neighbour's place. Only between two runs of the target.
    ///
    /// # Panics
    /// If the target runs: its links would not notice.
    pub fn move_target(&mut self, elsewhere: bool) {
        assert!(self.process.is_none(), "a target moves between two runs");
        self.move_target_away(elsewhere);
    }

    /// Freezes the target or a host: it does nothing for a while, and then everything.
    pub fn freeze_station(&mut self, station: Station, time: Duration) {
        self.freeze_part(Part::Station(station), time);
    }

    /// Stalls the disk: it ends no request for a while.
    pub fn stall_disk(&mut self, time: Duration) {
        self.freeze_part(Part::Disk, time);
    }

    /// Removes an export; it is added again some time after its last request, at most 5 s.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn remove_export(&mut self, export: usize) -> Result<(), Box<Violation>> {
        let result = self.remove_export_at(export);
        self.checked(result)
    }

    /// Removes a link of the target, for good.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn remove_target_link(&mut self, link: usize) -> Result<(), Box<Violation>> {
        let result = self.unlink(link);
        self.checked(result)
    }

    /// Adds a link of the target again that was removed, as soon as nothing of it is left.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn add_target_link(&mut self, link: usize) -> Result<(), Box<Violation>> {
        let result = self.link_back(link);
        self.checked(result)
    }

    /// Sets the probability that a flush or a write with FUA fails, and loses data to be written
    /// back.
    pub fn set_sync_errors(&mut self, probability: f64) {
        self.volumes[0].disk.set_sync_errors(probability);
    }

    /// Sets the probability of loss on a segment.
    pub fn set_loss(&mut self, segment: usize, probability: f64) {
        self.network.set_loss(segment, probability);
    }

    /// Cuts a segment, or repairs it.
    pub fn set_down(&mut self, segment: usize, down: bool) {
        self.network.set_down(segment, down);
    }

    /// Makes a link lose that share of the frames that it sends, and of those that are sent to it.
    pub fn set_one_way(&mut self, station: Station, link: usize, mute: f64, deaf: f64) {
        let port = self.network.port(station, link);
        self.network.set_one_way(port, mute, deaf);
    }

    /// Takes a link out of a host's session.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn remove_link(&mut self, host: usize, link: usize) -> Result<(), Box<Violation>> {
        let result = self.remove_link_of(host, link);
        self.checked(result)
    }

    /// Puts back a link that was taken out of a host's session.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn add_link(&mut self, host: usize, link: usize) -> Result<(), Box<Violation>> {
        let result = self.add_link_to(host, link);
        self.checked(result)
    }

    /// Makes a segment drop frames that are longer than `len`; `None`: as planned.
    pub fn set_frame_len_passed(&mut self, segment: usize, len: Option<usize>) {
        self.network.set_frame_len_passed(segment, len);
    }

    /// Makes an interface refuse frames that are longer than `len`; `None`: as planned.
    pub fn set_frame_len_taken(&mut self, station: Station, link: usize, len: Option<usize>) {
        self.network.set_frame_len_taken(self.network.port(station, link), len);
    }

    /// Gives a host's link over UDP another address, as routers do (NAT).
    pub fn rebind_link(&mut self, host: usize, link: usize) {
        self.report.rebinds += 1;
        self.network.rebind(self.network.port(Station::Host(host), link), false);
    }

    /// Sets the probability that a train on a segment with UDP is marked as congested.
    ///
    /// # Panics
    /// If it is a segment without.
    pub fn set_marks(&mut self, segment: usize, probability: f64) {
        self.network.set_marks(segment, probability);
    }

    /// Gives the disk another size, at most the planned one.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn resize(&mut self, size: u64) -> Result<(), Box<Violation>> {
        let result = self.resize_disk(size);
        self.checked(result)
    }

    /// Reads all of the disk back, and compares it with the answers that hosts have got.
    ///
    /// # Errors
    /// The violation that the checker found.
    pub fn audit(&mut self) -> Result<(), Box<Violation>> {
        let result = self.calm_down();
        self.checked(result)?;
        self.read_back()
    }
}
