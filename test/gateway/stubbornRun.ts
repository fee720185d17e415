/**
 * Stubborn clients at full size: `npm run campaign -- stubborn --connections 2000 --limit-ms 6000`. It fails where the gateway
 * holds a connection for more than twice its limit, or does not answer another client beside them.
 */

import { parseArgs } from 'node:util';
import { stubbornClients } from './live/stubborn.ts';

const { values } = parseArgs({
  options: {
    connections: { type: 'string', default: '2000' },
    'limit-ms': { type: 'string', default: '6000' },
  },
});
const report = await stubbornClients(Number(values.connections), Number(values['limit-ms']), 2);
console.log(JSON.stringify(report));
process.exitCode = report.limits <= 2 && report.held === 0 && report.beside === 200 ? 0 : 1;
