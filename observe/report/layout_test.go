package report

import (
	"fmt"
	"strings"
	"testing"
)

// wide has a column of words and more figures than a narrow terminal holds.
func wide() Table {
	t := Table{Title: "wide", Header: []string{"setting", "why"}}
	for i := range 12 {
		t.Header = append(t.Header, fmt.Sprintf("figure %d", i))
	}
	for _, name := range []string{"queue.factor=2", "rollout.concurrency=512"} {
		row := []string{name, "a queue of one batch lets the trainer starve near a utilization of one"}
		for i := range 12 {
			row = append(row, fmt.Sprintf("%d.%d", i, i))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func TestTablesReflow(t *testing.T) {
	for _, columns := range []int{60, 80, 100, 140} {
		text := wide().Fit(columns)
		for _, line := range strings.Split(text, "\n") {
			if n := len([]rune(line)); n > columns {
				t.Errorf("a line has %d columns of %d: %q", n, columns, line)
			}
		}
		words := strings.Fields(text)
		for _, row := range append(wide().Rows, wide().Header) {
			for _, cell := range row {
				for _, word := range strings.Fields(cell) {
					found := false
					for _, w := range words {
						found = found || w == word
					}
					if !found {
						t.Errorf("%d columns lost or broke %q", columns, word)
					}
				}
			}
		}
		if strings.Count(text, "queue.factor=2") < 2 && columns == 80 {
			t.Errorf("parts of a table do not repeat its first column:\n%s", text)
		}
	}
	if wide().Fit(1000) != wide().String() {
		t.Error("a table that fits is not printed as it is")
	}
}

func TestAnswerFits(t *testing.T) {
	long := strings.Repeat("the trainer waits for rollouts ", 20) + strings.Repeat("/a/long/path", 20)
	advice := Advice{Do: "--set queue.factor=1 " + long, Buys: "staleness 1.20 instead of 2.40; " + long, Price: long}
	for n := range 9 {
		a := Answer{Verdict: long, Rest: "--full has the rest."}
		for range n {
			a.Advice, a.Notes = append(a.Advice, advice), append(a.Notes, long)
		}
		for _, columns := range []int{0, 60, 80, 140} {
			text := a.Text(columns)
			lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			if len(lines) > answerLines {
				t.Errorf("%d advices: %d lines", n, len(lines))
			}
			for _, line := range lines {
				if len([]rune(line)) > NarrowColumns {
					t.Errorf("%d advices: %d columns: %q", n, len([]rune(line)), line)
				}
			}
			if !strings.Contains(text, "--full") {
				t.Errorf("%d advices: the way to the rest is lost", n)
			}
			if n > 0 && !strings.Contains(text, "1. --set queue.factor=1") {
				t.Errorf("%d advices: the first is lost:\n%s", n, text)
			}
		}
	}
}
