package tfi

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDelayDistributions(t *testing.T) {
	const n = 20_000
	for _, tc := range []struct {
		name         string
		d            Delay
		mean, stddev float64 // in milliseconds
		low, high    time.Duration
	}{
		{"fixed", Delay{Distribution: DelayFixed, A: 7 * time.Millisecond}, 7, 0, 7 * time.Millisecond, 7 * time.Millisecond},
		{"uniform", Delay{Distribution: DelayUniform, A: 10 * time.Millisecond, B: 22 * time.Millisecond}, 16, 12 / math.Sqrt(12), 10 * time.Millisecond, 22 * time.Millisecond},
		{"normal", Delay{Distribution: DelayNormal, A: 50 * time.Millisecond, B: 5 * time.Millisecond}, 50, 5, 0, time.Second},
		{"exponential", Delay{Distribution: DelayExponential, A: 20 * time.Millisecond}, 20, 20, 0, time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2)).Uint64
			var sum, squares float64
			for range n {
				d := tc.d.draw(random)
				if d < tc.low || d > tc.high {
					t.Fatalf("drew %v", d)
				}
				ms := d.Seconds() * 1000
				sum += ms
				squares += ms * ms
			}
			mean := sum / n
			stddev := math.Sqrt(max(squares/n-mean*mean, 0))
			if math.Abs(mean-tc.mean) > 0.03*tc.mean || math.Abs(stddev-tc.stddev) > 0.05*tc.stddev+1e-3 {
				t.Errorf("mean %.3f stddev %.3f, want %.3f and %.3f", mean, stddev, tc.mean, tc.stddev)
			}
		})
	}
}

func TestDelayIsNeverNegativeNorEndless(t *testing.T) {
	for _, bits := range []uint64{0, math.MaxUint64, 1 << 63, 1} {
		for _, d := range []Delay{
			{Distribution: DelayUniform, A: 0, B: maxDelay},
			{Distribution: DelayNormal, A: 0, B: maxDelay},
			{Distribution: DelayNormal, A: maxDelay, B: maxDelay},
			{Distribution: DelayExponential, A: maxDelay},
			{},
		} {
			if got := d.draw(func() uint64 { return bits }); got < 0 || got > maxDelay {
				t.Errorf("%+v with %x: %v", d, bits, got)
			}
		}
	}
}

func TestOutcomes(t *testing.T) {
	for _, tc := range []struct {
		a    answer
		want Outcome
	}{
		{answer{status: 200}, OutcomeSuccess},
		{answer{status: 399}, OutcomeSuccess},
		{answer{status: 400}, OutcomeFailure},
		{answer{status: 503}, OutcomeFailure},
		{answer{grpc: true}, OutcomeSuccess},
		{answer{grpc: true, status: 14}, OutcomeFailure},
		{answer{broken: true}, OutcomeFailure},
		{answer{grpc: true, broken: true}, OutcomeFailure},
	} {
		if got := tc.a.outcome(); got != tc.want {
			t.Errorf("%+v: %v", tc.a, got)
		}
		other := OutcomeSuccess + OutcomeFailure - tc.want
		if !tc.a.meets(OutcomeAny, 0) || !tc.a.meets(tc.want, 0) || tc.a.meets(other, 0) {
			t.Errorf("%+v meets the wrong outcomes", tc.a)
		}
		if tc.a.meets(OutcomeStatus, tc.a.status) == tc.a.broken || tc.a.meets(OutcomeStatus, 777) {
			t.Errorf("%+v meets the wrong status", tc.a)
		}
	}
}
