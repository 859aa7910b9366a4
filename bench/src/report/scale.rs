//! The chapters of the suite `scale`.

use std::fmt::Write;

use super::{Chapter, KIB, Panel, Pattern, Plot, Read, SequentialWrite, panel, plot};
use crate::job::Job;
use crate::plan::scale::{CORES, HOSTS, LARGE_DEPTH, SMALL_DEPTH, cannot_tell, cores_each};
use crate::plot::Shape;
use crate::result::{Metric, Results};

use Pattern::{Randread, Randwrite};

pub(super) const CHAPTERS: [Chapter; 2] = [
    Chapter {
        set: CORES,
        heading: "Cores",
        about: "One session with so many queues (`threads` in the names of jobs), each driven by a \
                thread of fio, at a target with as many threads; NBD with as many connections. The \
                host has the lower half of the cores, the target the upper one. Requests in flight \
                are those of each queue. FCoE has numbers of queues that are powers of two, since \
                it divides commands by bits of their numbers. A thread of the target is busy if it \
                has answered a tenth of an even share of the requests, or more; over UDP a further \
                thread answers those who search for targets.",
        plots: &[("scale.svg", requests), ("scale-bytes.svg", bytes)],
    },
    Chapter {
        set: HOSTS,
        heading: "Hosts",
        about: "A thousand sessions at one target, all idle, or fifty of them reading 4 KiB with \
                four requests in flight each; beside these, fifty that are alone. One thread is \
                the host of all of them, and each crowd comes to a target that has just started. \
                Memory is what of the target is resident, without the kernel's buffers of sockets.",
        plots: &[],
    },
];

/// Says what the machine allows to tell.
pub(super) fn explain(text: &mut String, results: &Results) {
    let cores = results.machine.cores;
    let said = cannot_tell(cores).unwrap_or_else(|| {
        let each = cores_each(cores);
        format!("Each side has {each} cores. A bar that needs more is not judged.")
    });
    let _ = writeln!(text, "\n{said}");
}

/// A panel by number of queues that have a core each; `None` if there is only one.
fn by_queues(results: &Results, caption: &str, kind: Job, metric: Metric) -> Option<Panel> {
    let each = cores_each(results.machine.cores);
    let jobs = results.jobs(CORES).into_iter();
    let jobs: Vec<_> = jobs
        .filter(|job| job.with_threads(1) == kind && job.threads <= each)
        .map(|job| (job.threads.to_string(), job))
        .collect();
    (jobs.len() > 1).then(|| panel(results, CORES, caption, &jobs, metric))
}

fn requests(results: &Results) -> Plot {
    let panels = [(Randread, "random reads"), (Randwrite, "random writes")].map(|(rw, caption)| {
        by_queues(results, caption, Job::new(rw, 4 * KIB, SMALL_DEPTH), |it| it.iops / 1e3)
    });
    let axes = ["queues, each with a core of either side", "thousand requests per second"];
    let title = format!("4 KiB requests, {SMALL_DEPTH} in flight for each queue");
    plot(results, &title, axes, Shape::Lines, panels.into_iter().flatten().collect())
}

fn bytes(results: &Results) -> Plot {
    let panels = [
        (Read, 64 * KIB, "64 KiB, sequential reads"),
        (SequentialWrite, 64 * KIB, "64 KiB, sequential writes"),
        (Read, 1024 * KIB, "1 MiB, sequential reads"),
        (SequentialWrite, 1024 * KIB, "1 MiB, sequential writes"),
    ]
    .map(|(rw, size, caption)| {
        by_queues(results, caption, Job::new(rw, size, LARGE_DEPTH), |it| it.bytes_per_s / 1e9)
    });
    let axes = ["queues, each with a core of either side", "GB/s"];
    let title = format!("Large requests, {LARGE_DEPTH} in flight for each queue");
    plot(results, &title, axes, Shape::Lines, panels.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Suite;
    use crate::result::{Measurement, testing};

    #[test]
    fn one_queue_is_no_plot_and_says_that_it_cannot_tell() {
        let mut results = testing::empty();
        results.suite = Suite::Scale;
        let dir = tempfile::tempdir().unwrap();
        let mut write = |queues: u16, cores| {
            let measurement = testing::measurement(CORES, "udp", 1, 1000.0);
            let job = measurement.job.with_threads(queues);
            results.machine.cores = cores;
            results.measurements.push(Measurement { job, ..measurement });
            super::super::write(&results, dir.path()).unwrap();
            std::fs::read_to_string(dir.path().join("README.md")).unwrap()
        };
        write(1, 2);
        // Two queues that share a core are no plot, either.
        let text = write(2, 2);
        assert!(text.contains("cannot be told here") && !text.contains(".svg"), "{text}");
        assert!(!dir.path().join("scale.svg").exists());
        let text = write(2, 4);
        assert!(text.contains("Each side has 2 cores") && text.contains("(scale.svg)"), "{text}");
        let svg = std::fs::read_to_string(dir.path().join("scale.svg")).unwrap();
        assert!(svg.contains("random reads") && !svg.contains("random writes"), "{svg}");
    }
}
