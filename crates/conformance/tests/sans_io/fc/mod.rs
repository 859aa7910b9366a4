//! The vectors about exchanges of Fibre Channel against the state machines, in virtual time, and
//! against machines that break a rule.

mod initiator;
mod target;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use tyche_conformance::fc::{FcRole, FcSubject, FcSuite, PortId};
use tyche_conformance::{Outcome, Result};
use tyche_fc::wire::{FcMap, Mac};
use tyche_fc::{Rule, Rules, wire};
use tyche_time::Instant;

/// The N_Port_ID that the suite plays, and that of the machine.
const PLAYED: wire::PortId = wire::PortId::new(0x0a01);
const TESTED: wire::PortId = wire::PortId::new(0x0b02);
const LUN: [u8; 8] = [0, 3, 0, 0, 0, 0, 0, 0];

fn mac(id: wire::PortId) -> Mac {
    Mac::fpma(FcMap::VN2VN, id)
}

fn bytes(id: wire::PortId) -> PortId {
    let [_, high, middle, low] = id.to_u32().to_be_bytes();
    [high, middle, low]
}

/// A build that keeps all rules but one.
#[derive(Clone, Copy)]
struct Kept(Option<Rule>);

impl Rules for Kept {
    fn keeps(self, rule: Rule) -> bool {
        self.0 != Some(rule)
    }
}

/// A state machine with its memory.
trait Machine {
    fn handle_frame(&mut self, now: Instant, frame: &wire::Frame<'_>);

    fn handle_timeout(&mut self, now: Instant);

    fn poll_timeout(&self) -> Option<Instant>;

    /// The next frame to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<Vec<u8>>;

    /// Executes an order to an initiator's agent.
    fn order(&mut self, _line: &str) -> Result<()> {
        Err("a target has no agent".to_owned())
    }

    /// The next line of an initiator's agent.
    fn said(&mut self) -> Option<String> {
        None
    }
}

/// A machine in virtual time, which moves from one timer to the next.
struct Simulated<M> {
    machine: M,
    now: Instant,
    sent: VecDeque<Vec<u8>>,
}

impl<M: Machine> Simulated<M> {
    fn new(machine: M) -> Self {
        Self { machine, now: Instant(1_000_000), sent: VecDeque::new() }
    }

    fn transmit(&mut self) {
        while let Some(frame) = self.machine.poll_transmit(self.now) {
            self.sent.push_back(frame);
        }
    }
}

impl<M: Machine> FcSubject for Simulated<M> {
    fn ports(&self) -> [PortId; 2] {
        [PLAYED, TESTED].map(bytes)
    }

    fn lun(&self) -> [u8; 8] {
        LUN
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now.0)
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let (head, rest) = frame.split_first_chunk().unwrap();
        // As the port does, in front of the machine.
        let frame = wire::Frame::parse(head, rest);
        if let Some(frame) = frame.ok().filter(|it| it.check_destination().is_ok()) {
            self.machine.handle_frame(self.now, &frame);
        }
        self.transmit();
        Ok(())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = self.now + patience;
        loop {
            if let Some(frame) = self.sent.pop_front() {
                return Ok(Some(frame));
            }
            if self.now >= deadline {
                return Ok(None);
            }
            let next = self.machine.poll_timeout().unwrap_or(deadline);
            self.now = next.max(self.now + Duration::from_micros(10)).min(deadline);
            self.machine.handle_timeout(self.now);
            self.transmit();
        }
    }

    fn order(&mut self, line: &str) -> Result<()> {
        self.machine.order(line)?;
        self.transmit();
        Ok(())
    }

    fn said(&mut self) -> Result<Option<String>> {
        Ok(self.machine.said())
    }
}

/// Runs all vectors of a role, each against a new machine without that rule; returns the failures.
fn failures(role: FcRole, broken: Option<Rule>) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance");
    let suite = FcSuite::read(&folder, role).unwrap();
    let mut failed = Vec::new();
    for name in suite.names() {
        let rules = Kept(broken);
        let outcome = match role {
            FcRole::Target => suite.run(&name, &mut Simulated::new(target::Target::new(rules))),
            FcRole::Initiator => {
                suite.run(&name, &mut Simulated::new(initiator::Initiator::new(rules)))
            }
        };
        match outcome {
            Outcome::Passed => {}
            Outcome::Known(why) => println!("{name}: known: {why}"),
            Outcome::Failed(why) => failed.push(format!("{name}: {why}")),
        }
    }
    failed
}

#[test]
fn the_target_of_fcoe_does_what_the_vectors_ask() {
    let failed = failures(FcRole::Target, None);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn the_initiator_of_fcoe_does_what_the_vectors_ask() {
    let failed = failures(FcRole::Initiator, None);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Tests that the suite detects machines without a rule.
macro_rules! canaries {
    ($($test:ident: $rule:ident at $role:ident;)*) => {$(
        #[test]
        fn $test() {
            let failed = failures(FcRole::$role, Some(Rule::$rule));
            println!("{}:\n{}", stringify!($rule), failed.join("\n"));
            assert!(!failed.is_empty(), "no vector misses {}", stringify!($rule));
        }
    )*};
}

canaries! {
    bytes_that_count_twice_are_noticed: CountOnce at Target;
    writes_of_a_part_are_noticed: ExecuteWhole at Target;
    rx_ids_that_come_again_are_noticed: RenewRxIds at Target;
    data_of_other_sequences_are_noticed: CheckSequences at Target;
    commands_that_are_done_twice_are_noticed: CheckNumbers at Target;
    late_data_at_a_target_are_noticed: Quarantine at Target;
    answers_of_earlier_exchanges_are_noticed: RefuseFormerRxIds at Initiator;
    bytes_of_reads_that_count_twice_are_noticed: CountOnce at Initiator;
    late_data_at_an_initiator_are_noticed: Quarantine at Initiator;
    commands_that_end_before_their_abort_are_noticed: AwaitAbort at Initiator;
}
