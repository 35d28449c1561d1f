package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// row is a line of a CSV file, with what its workload's id says.
type row struct {
	proxy       string
	shape       string
	bytes       int
	connections int
	rate        int
	values      map[string]float64
}

// readRecords reads a CSV file with a heading; a file that is not there has none.
func readRecords(file string) ([]map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var all []map[string]string
	for i, line := range lines {
		if i == 0 {
			continue
		}
		record := map[string]string{}
		for k, v := range line {
			record[lines[0][k]] = v
		}
		all = append(all, record)
	}
	return all, nil
}

// readSamples reads the measurements of ordinary traffic.
func readSamples(file string) ([]row, error) {
	records, err := readRecords(file)
	if err != nil {
		return nil, err
	}
	var all []row
	for _, r := range records {
		x := row{proxy: r["proxy"], values: map[string]float64{}}
		if !x.parse(r["workload"]) {
			continue
		}
		for k, v := range r {
			if n, err := strconv.ParseFloat(v, 64); err == nil {
				x.values[k] = n
			}
		}
		all = append(all, x)
	}
	return all, nil
}

// parse reads an id as `get-1024-c8` or `get-0-c16-r2000`; that of a trial's traffic
// is not for these pictures.
func (x *row) parse(id string) bool {
	parts := strings.Split(id, "-")
	if len(parts) < 3 {
		return false
	}
	x.shape = parts[0]
	var err error
	if x.bytes, err = strconv.Atoi(parts[1]); err != nil {
		return false
	}
	for _, p := range parts[2:] {
		n, err := strconv.Atoi(p[min(1, len(p)):])
		switch {
		case err == nil && p[0] == 'c':
			x.connections = n
		case err == nil && p[0] == 'r':
			x.rate = n
		default:
			return false
		}
	}
	return true
}

const anyNumber = -1

// choose takes rows of a shape, and of so many bytes and connections.
func choose(all []row, shape string, bytes, connections int) []row {
	return slices.DeleteFunc(slices.Clone(all), func(x row) bool {
		return x.shape != shape || bytes != anyNumber && x.bytes != bytes || connections != anyNumber && x.connections != connections
	})
}

func column(name string) func(row) float64 {
	return func(x row) float64 { return x.values[name] }
}

func byConnections(x row) float64 { return float64(x.connections) }
func byRate(x row) float64        { return float64(x.rate) }

// byBytes puts nothing where a logarithm can show it.
func byBytes(x row) float64 { return float64(max(1, x.bytes)) }
