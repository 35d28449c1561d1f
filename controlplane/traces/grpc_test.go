package traces

import (
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func insecureOption() grpc.DialOption {
	return grpc.WithTransportCredentials(insecure.NewCredentials())
}

func unimplemented(method string) error {
	return status.Error(codes.Unimplemented, method)
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
