// Package bench is the folder of the benchmark applications and of what is
// measured and shown with them.
//
//   - demo: a campaign on HotROD behind real Envoys (`make demo`).
//   - datapath: what sidecars cost, beside each other (`make bench-datapath`).
//   - apps: a module of its own that pins the applications.
//
// It is not part of the product: nothing imports it. To read first: demo.Start,
// demo.Env and demo.Options.
package bench
