/** The evaluation service on stdio over an evaluator that needs no simulation. */

import { serveLines } from '../../../src/policy/evaluate/transports.ts';
import { EvaluationService } from '../../../src/policy/evolve/serve.ts';
import { WeightEvaluator } from '../serve/weightEvaluator.ts';

const service = new EvaluationService({ evaluator: new WeightEvaluator() });
await serveLines(service, process.stdin, process.stdout);
process.exit(0);
