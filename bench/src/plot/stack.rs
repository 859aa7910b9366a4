//! Stacks: a column for each place, made of the medians of all series on top of each other.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{Drawn, GREY, Panel, STEPS, chart, swatch};

/// Room for the legend at the right, in places.
const LEGEND: usize = 2;
/// The parts of a request's time. The host is blue, the target orange, the store green, wake-ups
/// are red and the wire is grey, as `tyche-lab bench --stages-svg` has them.
const COLORS: [(&str, RGBColor); 16] = [
    ("submit", RGBColor(11, 60, 93)),
    ("transmit", RGBColor(0, 114, 178)),
    ("receive", RGBColor(86, 180, 233)),
    ("complete", RGBColor(166, 216, 245)),
    ("target receive", RGBColor(230, 159, 0)),
    ("target transmit", RGBColor(245, 201, 105)),
    ("store", RGBColor(0, 158, 115)),
    ("wake", RGBColor(213, 94, 0)),
    ("target wake", RGBColor(162, 62, 0)),
    ("wire there", RGBColor(153, 153, 153)),
    ("wire back", RGBColor(187, 187, 187)),
    ("initiation", RGBColor(0, 114, 178)),
    ("start of DMA", RGBColor(86, 180, 233)),
    ("wire", RGBColor(153, 153, 153)),
    ("interrupt", RGBColor(213, 94, 0)),
    ("software", RGBColor(230, 159, 0)),
];

/// The height of the highest stack.
pub(super) fn height(panel: &Panel) -> f64 {
    let of_place = |place: usize| {
        let values = panel.series.iter().filter_map(|series| *series.values.get(place)?);
        values.map(|spread| spread.median).sum::<f64>()
    };
    (0..panel.places.len()).map(of_place).fold(0.0, f64::max)
}

pub(super) fn draw(
    panel: &Panel,
    axes: [&str; 2],
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    max: f64,
) -> Drawn<()> {
    let mut chart = chart(panel, axes, area, (panel.places.len() + LEGEND, max * 1.05))?;
    let mut below = vec![0.0; panel.places.len()];
    for series in &panel.series {
        let color = COLORS.iter().find(|(name, _)| *name == series.name).map_or(GREY, |it| it.1);
        let values = series.values.iter().zip(&mut below).enumerate();
        let parts = values.filter_map(|(place, (value, below))| {
            let (left, from) = (place as i32 * STEPS + STEPS / 5, *below);
            *below += (*value)?.median;
            let corners = [(left, from), (left + STEPS * 3 / 5, *below)];
            Some(Rectangle::new(corners, color.filled()))
        });
        let drawn = chart.draw_series(parts.collect::<Vec<_>>())?;
        drawn.label(&series.name).legend(move |at| swatch(at, color));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Series;
    use crate::result::Spread;

    #[test]
    fn the_highest_stack_counts() {
        let value = |median| Some(Spread { median, min: 0.0, max: 100.0 });
        let series = [[value(1.0), value(2.0)], [value(5.0), None]];
        let series = series.map(|values| Series { name: "wake".to_owned(), values: values.into() });
        let places = ["a", "b"].map(str::to_owned).into();
        let panel = Panel { caption: String::new(), places, series: series.into() };
        assert_eq!(height(&panel), 6.0);
    }
}
