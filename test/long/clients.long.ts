import { clientsOfLongTest } from '../e2e/support/clients.ts';
import { describeClients } from '../e2e/support/compatibility.ts';

describe('more clients that people have, through the relay', function () {
  this.timeout(180_000);
  describeClients(clientsOfLongTest);
});
