// Package controlplane is the folder of everything that runs campaigns: the
// xDS server that hands policies to sidecars (ecds), the sources of traces
// (traces), the campaign loop with its workloads and its oracle, reports, and
// the `sequencefi` command.
//
// It is not on the data path: when it dies, sidecars drop what it gave them.
// To read first: campaign.Run, ecds.Server and campaignv1.CampaignReport.
package controlplane
