// Package apps pins the applications that demonstrations and experiments run:
// HotROD and Jaeger v2, both from the Jaeger module. It has no code of ours.
//
// It is a module of its own because Jaeger's OpenTelemetry versions clash at run
// time with newer ones. Both are built, unmodified, by
//
//	go build -o ../../.tools/bin/hotrod github.com/jaegertracing/jaeger/examples/hotrod
//	go build -o ../../.tools/bin/jaeger github.com/jaegertracing/jaeger/cmd/jaeger
//
// run in this folder.
package apps
