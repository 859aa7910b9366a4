//! The time of a request by stage, as `tyche-lab bench --stages` measures it.

use serde::{Deserialize, Serialize};

use crate::job::Job;
use crate::process::{Doing, Result, failed};

/// One peer's job in one turn, cut into stages.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StagedMeasurement {
    pub(crate) set: String,
    pub(crate) turn: u32,
    pub(crate) peer: String,
    pub(crate) spin_us: u32,
    pub(crate) job: Job,
    pub(crate) iops: f64,
    /// In the order in which a request passes them.
    pub(crate) stages: Vec<Stage>,
    /// The distance of the cores meanwhile, in nanoseconds; 0: not known.
    #[serde(default)]
    pub(crate) cores_ns: f64,
}

/// A stage of all requests; times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stage {
    #[serde(alias = "stage")]
    pub(crate) name: String,
    pub(crate) mean: f64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
}

/// The parts of the program's output that matter here.
#[derive(Deserialize)]
struct Output {
    iops: f64,
    stages: Breakdown,
}

#[derive(Deserialize)]
struct Breakdown {
    requests: u64,
    rows: Vec<Stage>,
}

/// Requests per second, and the stages, from the output of `tyche-lab bench --stages`.
pub(crate) fn parse(output: &str) -> Result<(f64, Vec<Stage>)> {
    let Output { iops, stages } = serde_json::from_str(output).doing("the stages")?;
    if stages.requests == 0 {
        return failed("the target does not tell where the time goes");
    }
    Ok((iops, stages.rows))
}

impl StagedMeasurement {
    /// The mean of a stage, in nanoseconds.
    pub(crate) fn mean(&self, name: &str) -> Option<f64> {
        self.stages.iter().find(|stage| stage.name == name).map(|stage| stage.mean)
    }

    /// The mean of all stages together, in nanoseconds.
    pub(crate) fn whole(&self) -> f64 {
        self.stages.iter().map(|stage| stage.mean).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_read_from_the_programs_output() {
        let row = r#"{"stage":"wire there","mean":1500.5,"p50":1400,"p99":3000,"share":0.5}"#;
        let output = |requests| {
            format!(r#"{{"iops":7.0,"stages":{{"requests":{requests},"rows":[{row}]}}}}"#)
        };
        let (iops, stages) = parse(&output(1)).unwrap();
        assert_eq!((iops, stages[0].mean, stages[0].name.as_str()), (7.0, 1500.5, "wire there"));
        assert!(parse(&output(0)).is_err());
    }
}
