//! Plots over time: lines over seconds, one for each turn, and marks.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{CAPTION, COLORS, Drawn, NOTE, size, split};
use crate::process::{Doing, Failure, Result};

/// One diagram.
#[derive(Clone, Debug)]
pub(crate) struct CoursePanel {
    pub(crate) caption: String,
    /// For each turn, pairs of seconds and values.
    pub(crate) turns: Vec<Vec<(f64, f64)>>,
    /// Moments in seconds, and the event at each.
    pub(crate) marks: Vec<(f64, &'static str)>,
}

/// Diagrams with a common y axis.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) title: String,
    pub(crate) y: String,
    pub(crate) panels: Vec<CoursePanel>,
    /// Small print: the source of the values.
    pub(crate) note: String,
}

impl Course {
    /// Writes the plot; false if there is nothing to show.
    pub(crate) fn write(&self, path: &Path) -> Result<bool> {
        let points = self.panels.iter().flat_map(|panel| panel.turns.iter().flatten());
        let max = points.map(|(_, value)| *value).fold(0.0, f64::max);
        if max <= 0.0 {
            return Ok(false);
        }
        let area = SVGBackend::new(path, size(self.panels.len())).into_drawing_area();
        self.draw(&area, max).map_err(|error| Failure::Failed(error.to_string()))?;
        area.present().doing(path.display())?;
        Ok(true)
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, max: f64) -> Drawn<()> {
        area.fill(&WHITE)?;
        let areas = split(area, self.panels.len(), [&self.title, &self.note])?;
        for (panel, area) in self.panels.iter().zip(areas) {
            self.draw_panel(panel, &area, max)?;
        }
        Ok(())
    }

    fn draw_panel(
        &self,
        panel: &CoursePanel,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        max: f64,
    ) -> Drawn<()> {
        let end = panel.turns.iter().filter_map(|turn| turn.last()).map(|it| it.0);
        let mut chart = ChartBuilder::on(area)
            .caption(&panel.caption, CAPTION)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(60)
            // Room above for the labels of the marks.
            .build_cartesian_2d(0.0..end.fold(1.0, f64::max), 0.0..max * 1.2)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("seconds")
            .y_desc(&self.y)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .draw()?;
        let color = COLORS[0].1;
        for (number, turn) in panel.turns.iter().enumerate() {
            // The first turn stands out; the others show whether it is typical.
            let style = if number == 0 { color.mix(1.0) } else { color.mix(0.35) };
            chart.draw_series(LineSeries::new(turn.iter().copied(), style.stroke_width(2)))?;
        }
        for (at, what) in &panel.marks {
            let line = vec![(*at, 0.0), (*at, max * 1.1)];
            chart.draw_series([PathElement::new(line, BLACK.mix(0.6))])?;
            chart.draw_series([Text::new((*what).to_owned(), (*at, max * 1.16), NOTE)])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(value: f64) -> Course {
        let panel = CoursePanel {
            caption: "reads".to_owned(),
            turns: vec![vec![(0.0, value), (1.0, value)]],
            marks: vec![(0.5, "cut")],
        };
        let [title, y, note] = ["title", "MB/s", "a machine"].map(str::to_owned);
        Course { title, y, panels: vec![panel], note }
    }

    #[test]
    fn marks_and_axes_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.svg");
        assert!(course(2.0).write(&path).unwrap());
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["title", "reads", "seconds", "MB/s", "cut", "a machine"] {
            assert!(svg.contains(&format!("\n{text}\n")), "no {text} in {svg}");
        }
        assert!(!course(0.0).write(&path).unwrap());
    }
}
