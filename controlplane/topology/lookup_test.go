package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	tfiv1 "github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1"
)

func load(t *testing.T, file string) *Topology {
	t.Helper()
	top, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func TestLookups(t *testing.T) {
	shop := load(t, "testdata/in/shop.yaml")
	if diff := cmp.Diff([]string{"cart", "prices", "web"}, shop.Names()); diff != "" {
		t.Errorf("Names: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"web"}, shop.Callers("bank")); diff != "" {
		t.Errorf("Callers: -want +got:\n%s", diff)
	}
	if got := shop.Callers("web"); len(got) != 0 {
		t.Errorf("Callers of the entry: %v", got)
	}
	if diff := cmp.Diff([]string{"web"}, shop.Entries()); diff != "" {
		t.Errorf("Entries: -want +got:\n%s", diff)
	}
	if _, ok := shop.Service("bank"); ok {
		t.Error("a leaf was taken for a service with a sidecar")
	}
	web, ok := shop.Service("web")
	if !ok || web.App != "127.0.0.1:8080" {
		t.Fatalf("Service: %v %v", web, ok)
	}
	var reached []string
	for _, c := range web.Calls {
		reached = append(reached, shop.CalleeProtocol(c)+" "+shop.CalleeAddress(c))
	}
	want := []string{"http 127.0.0.1:18081", "grpc [::1]:18082", "http2 bank.example:443"}
	if diff := cmp.Diff(want, reached); diff != "" {
		t.Errorf("callees: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]*tfiv1.ApiTemplate{{Path: "/cart/{user}/items/{item}"}, {Path: "/static/{path...}"}}, shop.APITemplates(), protocmp.Transform()); diff != "" {
		t.Errorf("APITemplates: -want +got:\n%s", diff)
	}
}

func TestPeers(t *testing.T) {
	for _, tc := range []struct {
		file, service string
		want          []*tfiv1.Peer
	}{
		{"shop", "web", []*tfiv1.Peer{
			{Service: "bank", Clusters: []string{"bank-v2"}, Leaf: true},
			{Service: "cart", Clusters: []string{"cart"}},
			{Service: "prices", Clusters: []string{"prices"}},
		}},
		{"shop", "cart", nil},
		{"shop", "nobody", nil},
		{"mesh", "web", []*tfiv1.Peer{{Service: "cart", Clusters: []string{
			"outbound|80||cart.shop.svc.cluster.local", "outbound|80|v2|cart.shop.svc.cluster.local",
		}}}},
	} {
		got := load(t, "testdata/in/"+tc.file+".yaml").Peers(tc.service)
		if diff := cmp.Diff(tc.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s %s: -want +got:\n%s", tc.file, tc.service, diff)
		}
	}
}
