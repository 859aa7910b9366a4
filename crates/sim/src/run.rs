//! A run of one seed, in three phases: with faults, to check safety; without faults, to check that
//! all operations end; and finally all of each disk is read back.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tyche_proto::crypto::EPOCH_BITS;
use tyche_proto::{AllRules, Operation, Rules};
use tyche_wire::{CommandFlags, Opcode};

use crate::fcoe;
use crate::options::Options;
use crate::plan::{HostPlan, Plan, Profile};
use crate::report::{Report, Violation, text_of};
use crate::world::World;

/// Time after which faults stop, even if operations are left.
const FAULTS_MAX: Duration = Duration::from_secs(20);
/// Time limit for the operations that are left when faults have stopped. The slowest network that
/// is drawn, with short frames and a long latency, moves 2 MB/s, and there may be 70 MB to move.
const CALM_MAX: Duration = Duration::from_secs(120);
/// Time limit until every working link is live again after the end of all operations. On a link on
/// which the target was never heard, Discovers are sent every 30 s. A path that has flapped pauses
/// for up to 64 times the pause between two attempts, which is at most half a second in plans; and
/// frames of an attempt may have to be repeated. Before that, a request that hangs at the disk may
/// keep the former channel open for 45 s.
const REJOIN_MAX: Duration = Duration::from_secs(90);
/// Time limit until each host has answered how many pages it may use, when all is quiet.
const CREDIT_MAX: Duration = Duration::from_secs(5);
/// Bytes of each read when the disk is read back.
const READ_BACK_LEN: u64 = 256 << 10;

/// Runs a seed.
///
/// # Errors
/// The violation that was found.
pub fn run(seed: u64, options: Options) -> Result<Report, Box<Violation>> {
    if options.profile == Profile::Fcoe {
        return fcoe::run(seed, options);
    }
    let plan = options.plan(seed);
    if plan.wraps {
        run_plan::<SoonWraps>(plan, options.verbose)
    } else {
        run_plan::<AllRules>(plan, options.verbose)
    }
}

/// All rules on, with numbers that wrap soon after a channel is opened.
#[derive(Clone, Copy, Debug)]
struct SoonWraps;

impl Rules for SoonWraps {
    const POSITION_FIRST: u32 = u32::MAX - 20;
    const GENERATION_FIRST: u16 = u16::MAX - 2;
    /// The next epoch begins 20 packets later, and the window of those that are told apart.
    const PACKET_FIRST: u64 = (1 << EPOCH_BITS) - 20;
}

/// Runs a seed with the rules `R`.
pub(crate) fn run_with<R: Rules>(seed: u64, options: Options) -> Result<Report, Box<Violation>> {
    run_plan::<R>(options.plan(seed), options.verbose)
}

fn run_plan<R: Rules>(
    plan: Plan,
    verbose: Option<Box<dyn Write>>,
) -> Result<Report, Box<Violation>> {
    let mut world = World::<R>::new(plan, verbose);
    // An assertion that fails in a state machine is a finding like any other.
    let result = catch_unwind(AssertUnwindSafe(|| world.run_through()));
    result.unwrap_or_else(|panic| Err(world.violation(text_of(panic.as_ref())).into()))
}

impl<R: Rules> World<R> {
    /// Runs all phases.
    pub(crate) fn run_through(&mut self) -> Result<Report, Box<Violation>> {
        self.run_until(FAULTS_MAX, |world| world.is_exhausted())?;
        self.calm_down().map_err(|what| self.violation(what))?;
        let over = self.run_until(CALM_MAX, |world| world.in_progress() == 0)?;
        if !over {
            let what = format!("{} operations never end", self.in_progress());
            return Err(self.violation(what).into());
        }
        let begun = self.elapsed();
        if !self.run_until(REJOIN_MAX, |world| world.idle_link().is_none())? {
            let what = format!("{:?} is whole, and does not come back", self.idle_link());
            return Err(self.violation(what).into());
        }
        let rejoined = self.elapsed() - begun;
        if !self.run_until(REJOIN_MAX, |world| world.untold_host().is_none())? {
            let what = format!("host {:?} is not told the target's next key", self.untold_host());
            return Err(self.violation(what).into());
        }
        if !self.run_until(CREDIT_MAX, |world| world.is_credit_settled())? {
            return Err(self.violation("a host never says which pages it uses".into()).into());
        }
        self.read_back()?;
        Ok(Report { rejoined, ..self.report() })
    }

    /// Has a new host, the auditor, read all of each disk, when no frame is in flight any more.
    pub(crate) fn read_back(&mut self) -> Result<(), Box<Violation>> {
        for (export, size) in self.exports() {
            self.read_back_export(export, size)?;
        }
        self.check_end().map_err(|what| self.violation(what).into())
    }

    fn read_back_export(&mut self, export: usize, size: u64) -> Result<(), Box<Violation>> {
        let plan = HostPlan { export, read_only: true, ..HostPlan::quiet() };
        let auditor = self.add_host(plan).map_err(|what| self.violation(what))?;
        if !self.run_until(CALM_MAX, |world| world.is_connected(auditor))? {
            return Err(self.violation("the auditor cannot connect".into()).into());
        }
        for offset in (0..size).step_by(READ_BACK_LEN as usize) {
            let len = (size - offset).min(READ_BACK_LEN) as u32;
            let (opcode, flags) = (Opcode::Read, CommandFlags::NONE);
            self.request(auditor, Operation { opcode, flags, offset, len })?;
        }
        if !self.run_until(CALM_MAX, |world| world.in_progress() == 0)? {
            return Err(self.violation("the auditor's reads never end".into()).into());
        }
        Ok(())
    }
}
