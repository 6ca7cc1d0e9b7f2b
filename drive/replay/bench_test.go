package replay_test

import (
	"bytes"
	"testing"

	"github.com/headway-rl/headway/drive/replay"
)

// BenchmarkVerify reports events of a trace per second, read and decided again.
func BenchmarkVerify(b *testing.B) {
	data, _ := record(b, simulated(b, nil), nil)
	b.SetBytes(int64(len(data)))
	events := int64(0)
	for b.Loop() {
		rep, err := replay.Verify(bytes.NewReader(data))
		if err != nil || rep.Difference != nil {
			b.Fatal(err, rep.Difference)
		}
		events += rep.Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkResimulate is a whole resimulation, reading and calibration included.
func BenchmarkResimulate(b *testing.B) {
	data, _ := record(b, simulated(b, nil), nil)
	for b.Loop() {
		if _, err := measure(b, data).Resimulate(replay.Settings{}); err != nil {
			b.Fatal(err)
		}
	}
}
