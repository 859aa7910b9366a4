//! The chapter of the suite `keys`.

use super::{Chapter, KIB, Pattern, Plot, by_depth, panel, plot};
use crate::plot::Shape;
use crate::result::Results;

use Pattern::{Randread, Randwrite};

const SET: &str = "keys";

pub(super) const CHAPTERS: [Chapter; 1] = [Chapter {
    set: SET,
    heading: "With keys and without",
    about: "Frames and UDP with every frame sealed (`tyche-keys`, `udp-keys`), and with checksums \
            (`tyche`, `udp`); beside them NBD with TLS (`nbd-tls`) and without. Both sides of \
            Tyche may spin for a millisecond.",
    plots: &[("keys.svg", by_depths)],
}];

fn by_depths(results: &Results) -> Plot {
    let panel = |rw: Pattern, caption: &str| {
        let jobs = by_depth(results, SET, rw, 4 * KIB);
        panel(results, SET, caption, &jobs, |it| it.iops / 1e3)
    };
    let panels = vec![panel(Randread, "random reads"), panel(Randwrite, "random writes")];
    let axes = ["requests in flight", "thousand requests per second"];
    plot(results, "4 KiB with keys and without", axes, Shape::Columns, panels)
}
