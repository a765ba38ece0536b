package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"fanoutbench/internal/result"
)

// column of a table: a cell for each subject that was measured.
type column struct {
	head string
	cell func(Summary) string
}

// columns are what a workload has to tell.
func columns(w workload, list []Summary) (table []column) {
	switch {
	case w.reports > 0:
		table = slices.Clone(reportColumns)
	case w.start:
		table = slices.Clone(startColumns)
	case w.updates > 0:
		table = slices.Concat(updateColumns, streamColumns)
	default:
		table = slices.Clone(streamColumns)
	}
	if w.resume {
		table = append(table, column{"resumed", storms("%.0f", func(s result.Storm) float64 { return float64(s.Resumed) })})
	}
	for _, peer := range peersAmong(w.subjects) {
		table = append(table, column{"×" + peer, func(s Summary) string { return ratios(s.Ratios[peer]) }})
	}
	if slices.ContainsFunc(list, func(s Summary) bool { return s.Growth > 0 }) {
		table = append(table, column{"×" + w.against, func(s Summary) string { return ratio(s.Growth) }})
	}
	return append(table, column{"errors", func(s Summary) string { return fmt.Sprint(s.Errors) }})
}

var updateColumns = []column{
	{"µs/upd", func(s Summary) string { return micro(s.CPUPerUpdate) }},
	{"(min–max)", func(s Summary) string { return micro(s.CPUMin) + "–" + micro(s.CPUMax) }},
	{"µs/MB", number("%.0f", func(s Summary) float64 { return s.CPUPerMB })},
	{"B/upd", number("%.0f", func(s Summary) float64 { return s.BytesPerUpd })},
	{"p50", number("%.1f", func(s Summary) float64 { return s.P50 })},
	{"p99", number("%.1f", func(s Summary) float64 { return s.P99 })},
	{"last ms", number("%.1f", func(s Summary) float64 { return s.Last })},
	{"super", func(s Summary) string { return fmt.Sprint(s.Superseded) }},
}

var streamColumns = []column{
	{"storm s", storms("%.2f", func(s result.Storm) float64 { return s.Seconds })},
	perStreamColumn,
	{"client's", storms("%.0f", func(s result.Storm) float64 { return s.ClientCPU })},
	{"KB/stream", func(s Summary) string { return fmt.Sprintf("%.0f/%.0f", s.KBStreamIdle, s.KBStreamAfter) }},
	{"MB", func(s Summary) string { return fmt.Sprintf("%.0f/%.0f", s.RSSStartMB, s.RSSAfterMB) }},
}

var perStreamColumn = column{"µs/stream", storms("%.0f", func(s result.Storm) float64 { return s.CPUPerStream })}

var startColumns = []column{
	{"listens s", number("%.2f", func(s Summary) float64 { return s.Start.Listens })},
	{"CPU s", func(s Summary) string { return fmt.Sprintf("%.2f/%.2f", s.Start.CPUListens, s.Start.CPU) }},
	{"MB", number("%.0f", func(s Summary) float64 { return s.RSSStartMB })},
	perStreamColumn,
	{"first/last", number("%.2f", func(s Summary) float64 { return s.Storms[0].CPUPerStream / s.of(perStream) })},
	{"KB/stream", number("%.0f", func(s Summary) float64 { return s.KBStreamIdle })},
}

var reportColumns = []column{
	{"µs/report", func(s Summary) string { return micro(s.CPUPerUpdate) }},
	{"(min–max)", func(s Summary) string { return micro(s.CPUMin) + "–" + micro(s.CPUMax) }},
	{"% of a core", number("%.2f", func(s Summary) float64 { return 100 * s.Core })},
	{"B/report", number("%.0f", func(s Summary) float64 { return s.BytesPerUpd })},
	{"KB/stream", func(s Summary) string { return fmt.Sprintf("%.0f/%.0f", s.KBStreamIdle, s.KBStreamAfter) }},
	{"plane: reports/s", number("%.1f", func(s Summary) float64 { return s.Plane.Reports })},
	{"KB/s", number("%.1f", func(s Summary) float64 { return s.Plane.BytesPerSec / 1e3 })},
	{"µs/report", number("%.2f", func(s Summary) float64 { return s.Plane.CPUPerReport })},
	{"% of a core", number("%.3f", func(s Summary) float64 { return 100 * s.Plane.Core })},
}

func printTable(out io.Writer, w workload, list []Summary) {
	protocol := "SotW"
	if w.delta {
		protocol = "delta"
	}
	if w.reports > 0 {
		protocol = "LRS"
	}
	fmt.Fprintf(out, "\n%s: %s; %d streams, %s; ratios compare %s\n", w.name, w.about, w.streams, protocol, join(w.compare, "; "))
	table := columns(w, list)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%-16s\t", "subject")
	for _, c := range table {
		fmt.Fprintf(t, "%s\t", c.head)
	}
	fmt.Fprintln(t)
	for _, s := range list {
		fmt.Fprintf(t, "%-16s\t", s.Subject)
		for _, c := range table {
			cell := "–"
			if s.Rounds > 0 {
				cell = c.cell(s)
			}
			fmt.Fprintf(t, "%s\t", cell)
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // like every write to a terminal
	for _, s := range list {
		for _, n := range s.Notes {
			fmt.Fprintf(out, "  %s: %s\n", s.Subject, n)
		}
	}
}

func number(format string, of func(Summary) float64) func(Summary) string {
	return func(s Summary) string { return fmt.Sprintf(format, of(s)) }
}

// storms gives a number of each: first/second/….
func storms(format string, of func(result.Storm) float64) func(Summary) string {
	return func(s Summary) string {
		var list []string
		for _, storm := range s.Storms {
			list = append(list, fmt.Sprintf(format, of(storm)))
		}
		return strings.Join(list, "/")
	}
}

func micro(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// ratios of one subject to another.
func ratios(list []float64) string {
	var all []string
	for _, r := range list {
		all = append(all, ratio(r))
	}
	if all == nil {
		return "–"
	}
	return strings.Join(all, "; ")
}

func ratio(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v < 0.05:
		return fmt.Sprintf("%.4f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func join(metrics []metric, between string) string {
	var list []string
	for _, m := range metrics {
		list = append(list, string(m))
	}
	return strings.Join(list, between)
}
