//! A run of one seed: first faults, to see that nothing goes wrong; then none, to see that
//! everything comes to an end; then all of each disk is read back.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tyche_proto::{Operation, Rules, Sound};
use tyche_wire::{CommandFlags, Opcode};

use crate::plan::{HostPlan, Plan, Profile};
use crate::report::{Report, Violation};
use crate::world::World;

/// Faults stop after that long, even if operations are left.
const FAULTS_MAX: Duration = Duration::from_secs(20);
/// How long what is left may take when nothing goes wrong any more. The slowest that is drawn,
/// short frames over a long way, moves 2 MB/s, and has had up to 70 MB left to move.
const CALM_MAX: Duration = Duration::from_secs(120);
/// Every link that is whole must be live that long after everything is over. A link on which the
/// target was never heard is asked on every 30 s, one that flapped is left alone for 64 times the
/// pause between two attempts at most, which is half a second in plans, and then some of the
/// frames of an attempt may have to be sent again. Before all that, a request that hangs at the
/// disk may keep the former channel from being closed, for 45 s.
const REJOIN_MAX: Duration = Duration::from_secs(90);
/// Bytes of one read when all of the disk is read back.
const READ_BACK_LEN: u64 = 256 << 10;

/// How to run seeds.
pub struct Options {
    /// Which worlds the seeds stand for.
    pub profile: Profile,
    /// Operations of a seed.
    pub operations: u32,
    /// Who is told everything that happens.
    pub verbose: Option<Box<dyn Write>>,
    /// Changes what the seed has drawn.
    pub adjust: Option<fn(&mut Plan)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { profile: Profile::default(), operations: 400, verbose: None, adjust: None }
    }
}

/// Runs a seed.
///
/// # Errors
/// What must never happen, and did.
pub fn run(seed: u64, options: Options) -> Result<Report, Box<Violation>> {
    let plan = options.plan(seed);
    if plan.wraps {
        run_plan::<SoonWraps>(plan, options.verbose)
    } else {
        run_plan::<Sound>(plan, options.verbose)
    }
}

/// All rules on, and numbers that wrap as soon as a channel is in use.
#[derive(Clone, Copy, Debug)]
struct SoonWraps;

impl Rules for SoonWraps {
    const POSITION_FIRST: u32 = u32::MAX - 20;
    const GENERATION_FIRST: u16 = u16::MAX - 2;
}

impl Options {
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = Plan::draw(seed, self.operations, self.profile);
        if let Some(adjust) = self.adjust {
            adjust(&mut plan);
        }
        plan
    }
}

/// Runs a seed under rules that may be broken.
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

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a state machine panicked: {}", text.unwrap_or("without a word"))
}

impl<R: Rules> World<R> {
    /// All phases of a run.
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
        self.read_back()?;
        Ok(Report { rejoined, ..self.report() })
    }

    /// An auditor reads the whole of each disk, after all frames have come to rest.
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
