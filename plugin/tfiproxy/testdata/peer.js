// A gRPC peer on Node's own HTTP/2. See peers_test.go for what it says and hears.
//   node peer.js call ADDRESS TRACE CALL...    CALL is KIND:METHOD:MESSAGES:BYTES
//   node peer.js serve METHOD...
'use strict';
const grpc = require('@grpc/grpc-js');

const bytes = (b) => b;
const limit = { 'grpc.max_receive_message_length': 64 << 20 };

function call(client, trace, kind, method, messages, size) {
  return new Promise((resolve) => {
    const sent = [];
    for (let i = 0; i < messages; i++) sent.push(Buffer.concat([Buffer.from(`${i} `), Buffer.alloc(size, 'x')]));
    const metadata = new grpc.Metadata();
    metadata.set('traceparent', trace);
    metadata.set('x-kind', kind);
    const options = { deadline: Date.now() + 20000 };
    const got = [];
    const fic = new Set();
    const look = (m) => {
      for (const [k, v] of Object.entries(m ? m.getMap() : {})) if (k.startsWith('x-fic-')) fic.add(`${k}=${v}`);
    };
    const begun = process.hrtime.bigint();
    let stream;
    // The status comes last, but a unary call's answer may come after it.
    const end = (status) => setImmediate(() => {
      look(status.metadata);
      const took = Number((process.hrtime.bigint() - begun) / 1000000n);
      const total = got.reduce((n, b) => n + b.length, 0);
      const code = grpc.status[status.code];
      console.log([kind, method, code, got.length, total, took, [...fic].sort().join(',') || '-', status.details].join('|'));
      resolve();
    });
    const one = (err, answer) => { if (!err) got.push(answer); };
    if (kind === 'unary') stream = client.makeUnaryRequest(method, bytes, bytes, sent[0], metadata, options, one);
    if (kind === 'server') stream = client.makeServerStreamRequest(method, bytes, bytes, sent[0], metadata, options);
    if (kind === 'client') stream = client.makeClientStreamRequest(method, bytes, bytes, metadata, options, one);
    if (kind === 'bidi') stream = client.makeBidiStreamRequest(method, bytes, bytes, metadata, options);
    stream.on('metadata', look);
    stream.on('status', end);
    if (kind === 'server' || kind === 'bidi') {
      stream.on('data', (b) => got.push(b));
      stream.on('error', () => {}); // the status says so too
    }
    if (kind === 'client' || kind === 'bidi') {
      for (const b of sent) stream.write(b);
      stream.end();
    }
  });
}

function answer(method, stream) {
  const kind = stream.metadata.get('x-kind')[0] || 'bidi';
  const trailers = new grpc.Metadata();
  if (stream.metadata.get('x-fic-evidence').length > 0) trailers.set('saw-evidence', '1');
  let total = 0;
  stream.on('data', (b) => {
    total += b.length;
    if (kind === 'server') for (let i = 0; i < 20; i++) stream.write(b);
    else if (kind !== 'client') stream.write(b);
  });
  stream.on('end', () => {
    if (kind === 'client') stream.write(Buffer.from(`${total}`));
    if (method === '/s/Fail') {
      stream.emit('error', { code: grpc.status.NOT_FOUND, details: 'nothing — here', metadata: trailers });
      return;
    }
    stream.end(trailers);
  });
  stream.on('error', () => {});
}

async function main([what, ...args]) {
  if (what === 'call') {
    const [address, trace, ...calls] = args;
    const client = new grpc.Client(address, grpc.credentials.createInsecure(), limit);
    for (const text of calls) {
      const [kind, method, messages, size] = text.split(':');
      await call(client, trace, kind, method, Number(messages), Number(size));
    }
    client.close();
    return;
  }
  const server = new grpc.Server(limit);
  for (const method of args) server.register(method, (stream) => answer(method, stream), bytes, bytes, 'bidi');
  server.bindAsync('127.0.0.1:0', grpc.ServerCredentials.createInsecure(), (err, port) => {
    if (err) throw err;
    console.log(`127.0.0.1:${port}`);
  });
  process.stdin.resume().on('end', () => server.forceShutdown()); // until the test ends
}

main(process.argv.slice(2));
