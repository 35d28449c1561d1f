// Package proto is the folder of the contracts between SequenceFI's parts, and
// of the Go code generated from them (`make proto`).
//
//   - sequencefi/tfi/v1: what a sidecar is told: policies, activations, TFICs.
//   - sequencefi/campaign/v1: campaign files, trials, findings, reports.
//   - sequencefi/solver/v1: the solver's service.
//   - valid: one pure validation function a message.
//
// It is not where messages are interpreted. To read first: [tfiv1.Tfic],
// [tfiv1.Policy] and [campaignv1.CampaignReport].
//
// [tfiv1.Tfic]: https://pkg.go.dev/github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1#Tfic
// [tfiv1.Policy]: https://pkg.go.dev/github.com/sequencefi/sequencefi/proto/sequencefi/tfi/v1#Policy
// [campaignv1.CampaignReport]: https://pkg.go.dev/github.com/sequencefi/sequencefi/proto/sequencefi/campaign/v1#CampaignReport
package proto
