//! Plots: lines, columns or stacks over named places, in one panel or more beside each other; and
//! courses over time.

mod course;
mod stack;

pub(crate) use course::{Course, CoursePanel};

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::types::{RangedCoordf64, RangedCoordi32};
use plotters::prelude::*;

use crate::process::{Doing, Failure, Result};
use crate::result::Spread;

/// A drawn part of a plot, or the error of drawing it.
type Drawn<T> = std::result::Result<T, DrawingAreaErrorKind<std::io::Error>>;
/// A panel's chart: places along the lower edge, values upwards.
type Chart<'c, 'b> = ChartContext<'c, SVGBackend<'b>, Cartesian2d<RangedCoordi32, RangedCoordf64>>;

/// Pixels of a panel.
const PANEL: (u32, u32) = (480, 360);
const TITLE: (&str, u32) = ("sans-serif", 18);
const CAPTION: (&str, u32) = ("sans-serif", 15);
const NOTE: (&str, u32) = ("sans-serif", 11);
/// Panels in a row.
const COLUMNS_MAX: usize = 4;
/// Pixels above and below the panels.
const TITLE_HEIGHT: u32 = 30;
const NOTE_HEIGHT: u32 = 20;
/// Finest steps within a place's part of the x axis; columns are some steps wide.
const STEPS: i32 = 100;
/// Colour of everything that is no peer. Colour-blind readers can tell it apart, like the others.
const GREY: RGBColor = RGBColor(120, 120, 120);
/// Colours of peers, and of variants of Tyche in their order: the same in every plot.
const COLORS: [(&str, RGBColor); 17] = [
    ("tyche", RGBColor(0, 114, 178)),
    ("default", RGBColor(0, 114, 178)),
    ("udp", RGBColor(86, 180, 233)),
    ("tsockets", RGBColor(230, 159, 0)),
    ("nbd", RGBColor(0, 158, 115)),
    ("nbd-mptcp", RGBColor(204, 121, 167)),
    ("payload capacity", RGBColor(200, 200, 200)),
    ("bare trains", RGBColor(170, 170, 170)),
    ("tuned N", RGBColor(60, 60, 60)),
    ("LOCAL", RGBColor(60, 60, 60)),
    ("BASE", RGBColor(240, 200, 40)),
    ("BASE1", RGBColor(230, 159, 0)),
    ("BASE4", RGBColor(213, 94, 0)),
    ("BASE16", RGBColor(140, 50, 0)),
    ("ELIM0", RGBColor(0, 158, 115)),
    ("ELIM", RGBColor(86, 180, 233)),
    ("ELIM16", RGBColor(0, 114, 178)),
];
const VARIANTS: [RGBColor; 2] = [RGBColor(204, 121, 167), RGBColor(213, 94, 0)];

/// The form of a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Lines,
    Columns,
    /// The series on top of each other.
    Stack,
}

/// Values of one peer, one for each place.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<Spread>>,
}

/// One diagram.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) caption: String,
    pub(crate) places: Vec<String>,
    pub(crate) series: Vec<Series>,
}

/// Diagrams with a common y axis.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) shape: Shape,
    pub(crate) panels: Vec<Panel>,
    /// Small print: the source of the values.
    pub(crate) note: String,
}

impl Plot {
    /// The largest value.
    fn max(&self) -> f64 {
        if self.shape == Shape::Stack {
            return self.panels.iter().map(stack::height).fold(0.0, f64::max);
        }
        let series = self.panels.iter().flat_map(|panel| &panel.series);
        let values = series.flat_map(|series| series.values.iter().flatten());
        values.map(|spread| spread.max).fold(0.0, f64::max)
    }

    /// Writes the plot; false if there is nothing to show.
    pub(crate) fn write(&self, path: &Path) -> Result<bool> {
        let max = self.max();
        if max <= 0.0 {
            return Ok(false);
        }
        let known = |panel: &&Panel| {
            panel.series.iter().any(|series| series.values.iter().any(Option::is_some))
        };
        let panels: Vec<_> = self.panels.iter().filter(known).collect();
        let area = SVGBackend::new(path, size(panels.len())).into_drawing_area();
        self.draw(&panels, &area, max).map_err(|error| Failure::Failed(error.to_string()))?;
        area.present().doing(path.display())?;
        Ok(true)
    }

    fn draw(
        &self,
        panels: &[&Panel],
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        max: f64,
    ) -> Drawn<()> {
        area.fill(&WHITE)?;
        for (panel, area) in
            panels.iter().zip(split(area, panels.len(), [&self.title, &self.note])?)
        {
            self.draw_panel(panel, &area, max)?;
        }
        Ok(())
    }

    fn draw_panel(
        &self,
        panel: &Panel,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        max: f64,
    ) -> Drawn<()> {
        if self.shape == Shape::Stack {
            return stack::draw(panel, [&self.x, &self.y], area, max);
        }
        // Room above for the legend.
        let (places, height) = (panel.places.len(), max * 1.5);
        let mut chart = chart(panel, [&self.x, &self.y], area, (places, height))?;
        for (number, series) in panel.series.iter().enumerate() {
            let color = color(&series.name, number);
            let values = series.values.iter().enumerate();
            let known = values.filter_map(|(place, value)| Some((place as i32, (*value)?)));
            let middle = |place: i32| place * STEPS + STEPS / 2;
            let drawn = match self.shape {
                Shape::Lines => {
                    let points = known.clone().map(|(place, it)| (middle(place), it.median));
                    chart.draw_series(known.map(|(place, it)| {
                        let ends = vec![(middle(place), it.min), (middle(place), it.max)];
                        PathElement::new(ends, color.mix(0.5))
                    }))?;
                    chart
                        .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
                }
                Shape::Columns | Shape::Stack => {
                    let width = STEPS * 8 / 10 / panel.series.len() as i32;
                    let left = STEPS / 10 + width * number as i32;
                    let column = |place: i32| place * STEPS + left;
                    let drawn = chart.draw_series(known.clone().map(|(place, it)| {
                        let corner = (column(place) + width, it.median);
                        Rectangle::new([(column(place), 0.0), corner], color.filled())
                    }))?;
                    drawn.label(&series.name).legend(move |at| swatch(at, color));
                    chart.draw_series(known.map(|(place, it)| {
                        let x = column(place) + width / 2;
                        PathElement::new(vec![(x, it.min), (x, it.max)], BLACK)
                    }))?;
                    continue;
                }
            };
            drawn.label(&series.name).legend(move |at| swatch(at, color));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .draw()
    }
}

/// A chart with caption and axes: `places` places wide, at least those of the panel, and `height`
/// high.
fn chart<'c, 'b>(
    panel: &Panel,
    [x, y]: [&str; 2],
    area: &DrawingArea<SVGBackend<'b>, Shift>,
    (places, height): (usize, f64),
) -> Drawn<Chart<'c, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.caption, CAPTION)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0..places as i32 * STEPS, 0.0..height)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(x)
        .y_desc(y)
        // Twice as many labels as places: every other one is in the middle of a place.
        .x_labels(places * 2 + 1)
        .y_label_formatter(&|y| format!("{}", (y * 1e3).round() / 1e3))
        .x_label_formatter(&|x| label(*x, &panel.places))
        .draw()?;
    Ok(chart)
}

/// Columns and rows of `panels` panels.
fn grid(panels: usize) -> (u32, u32) {
    let columns = panels.clamp(1, COLUMNS_MAX);
    (columns as u32, panels.div_ceil(columns) as u32)
}

/// Pixels of `panels` panels, with title and note.
fn size(panels: usize) -> (u32, u32) {
    let (columns, rows) = grid(panels);
    (PANEL.0 * columns, TITLE_HEIGHT + PANEL.1 * rows + NOTE_HEIGHT)
}

/// Writes title and note, and returns the areas of `panels` panels.
fn split<'a>(
    area: &DrawingArea<SVGBackend<'a>, Shift>,
    panels: usize,
    [title, note]: [&str; 2],
) -> Drawn<Vec<DrawingArea<SVGBackend<'a>, Shift>>> {
    let (columns, rows) = grid(panels);
    let (area, below) = area.split_vertically(TITLE_HEIGHT + PANEL.1 * rows);
    below.draw_text(note, &NOTE.into_text_style(&below), (12, 0))?;
    Ok(area.titled(title, TITLE)?.split_evenly((rows as usize, columns as usize)))
}

/// The colour of the series of that name; `number` is its index in the plot.
fn color(name: &str, number: usize) -> RGBColor {
    let own = COLORS.iter().find(|(peer, _)| *peer == name).map(|(_, color)| *color);
    let variant = name.starts_with("tyche-").then(|| VARIANTS[number % VARIANTS.len()]);
    own.or(variant).unwrap_or(GREY)
}

fn swatch((x, y): (i32, i32), color: RGBColor) -> Rectangle<(i32, i32)> {
    Rectangle::new([(x, y - 4), (x + 14, y + 4)], color.filled())
}

/// The name of the place that has `x` in its middle.
fn label(x: i32, places: &[String]) -> String {
    let in_the_middle = x.rem_euclid(STEPS) == STEPS / 2;
    let place = usize::try_from(x / STEPS).ok().filter(|_| in_the_middle);
    place.and_then(|place| places.get(place)).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(shape: Shape, values: Vec<Option<Spread>>) -> Plot {
        let places = ["one", "two"].map(str::to_owned).into();
        let series = vec![Series { name: "tyche".to_owned(), values }];
        let panel = Panel { caption: "reads".to_owned(), places, series };
        let panels = vec![panel.clone(), panel];
        let [title, x, y, note] = ["title", "x", "y", "a machine"].map(str::to_owned);
        Plot { title, x, y, shape, panels, note }
    }

    #[test]
    fn places_series_and_axes_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        let value = Spread { median: 2.0, min: 1.0, max: 3.0 };
        for shape in [Shape::Lines, Shape::Columns, Shape::Stack] {
            assert!(plot(shape, vec![Some(value), None]).write(&path).unwrap());
            let svg = std::fs::read_to_string(&path).unwrap();
            for text in ["title", "reads", "tyche", "one", "two", "a machine"] {
                assert!(svg.contains(&format!("\n{text}\n")), "no {text} in {svg}");
            }
        }
    }

    #[test]
    fn there_is_no_empty_plot() {
        let path = Path::new("/nowhere/a.svg");
        assert!(!plot(Shape::Lines, vec![None, None]).write(path).unwrap());
    }
}
