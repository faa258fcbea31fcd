-- key eb5717e2f2b29abad6e363094ff5d637fcefe5e1f65458726f13d48b3192b6ec
PRAGMA user_version = 1;
PRAGMA application_id = 1936684148;
BEGIN TRANSACTION;
CREATE TABLE accounts (
        person BLOB NOT NULL, account INTEGER NOT NULL, granted INTEGER NOT NULL, cap INTEGER NOT NULL,
        spent INTEGER NOT NULL, PRIMARY KEY (person, account),
        CHECK (0 <= granted AND granted <= cap), CHECK (0 <= spent AND spent <= cap)) STRICT, WITHOUT ROWID;
INSERT INTO "accounts" VALUES(X'39FCF9ECD420F927F6987F93740476A4',0,20000000000,20000000000,4750000000);
INSERT INTO "accounts" VALUES(X'39FCF9ECD420F927F6987F93740476A4',2,1000000000,1000000000,0);
INSERT INTO "accounts" VALUES(X'39FCF9ECD420F927F6987F93740476A4',3,10000000000,10000000000,1000);
INSERT INTO "accounts" VALUES(X'63A64659AB2C94230A57BD13BF7B3371',0,20000000000,20000000000,4625000000);
INSERT INTO "accounts" VALUES(X'63A64659AB2C94230A57BD13BF7B3371',2,1000000000,1000000000,0);
INSERT INTO "accounts" VALUES(X'63A64659AB2C94230A57BD13BF7B3371',3,10000000000,10000000000,1000);
INSERT INTO "accounts" VALUES(X'6698766D57CFC8FC157C0B67F99F4512',0,20000000000,20000000000,4500000000);
INSERT INTO "accounts" VALUES(X'74B04FD6F229DE5A678F9C3C8162FA13',0,20000000000,20000000000,4500000000);
INSERT INTO "accounts" VALUES(X'D6ED77911EF2A0674AFEF92FAF53365D',0,20000000000,20000000000,4500000000);
CREATE TABLE entries (
        number INTEGER NOT NULL PRIMARY KEY, what TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL,
        at TEXT NOT NULL, lines INTEGER NOT NULL, root BLOB NOT NULL, digest BLOB NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "entries" VALUES(0,'open','e9c55c3f6a2176f2e941a9133edda1b0','9e31b01d1e5ba72e46d6a30ed927aceb50ed7b9257d5eef9a3fbd31c960f2110765ac97fa5d2b3306730e239dd210f0975510c7b459d7d86d71c5651e8e4d59a','2026-11-16T17:13:52+00:00',0,X'0000000000000000000000000000000000000000000000000000000000000000',X'99A57D3D511C69CFCE4E45605EFED6587E023976780EA586F24A0D6F28EF005D');
INSERT INTO "entries" VALUES(1,'grant','','','2026-11-16T17:13:52+00:00',5,X'68224D5F6D968B7C1B3450F1CA8873B9762C12706EAEB8739009DB4AF61BF48D',X'E84407D7DB97310CF5723F0921F82F962BF91B727A135F590E5C59B1785B521C');
INSERT INTO "entries" VALUES(2,'grant','','','2026-11-16T17:13:52+00:00',4,X'9213AD9A614544B167E0CEA121BF69227B653BE00AEBDB76DF9A8ACED13290AB',X'A78BAC902A6810781593006AD644D04020E20A713104A5F7E42C58CBBB05EBE9');
INSERT INTO "entries" VALUES(3,'reserve','mean of a column','0f8e8bccbc16fecdc5e2a5e3b7d6c75a23e97fd537fcda68e131d7a252ee70f8','2026-11-16T17:14:00+00:00',5,X'9D8CC759713F5B974932A826D85CB9CEFFE1562809799681B8DC025F26DC76C8',X'D79B90D223018825CD26C635156CBDC7495D4F5EBA550A03F4C0E27FC343CA19');
INSERT INTO "entries" VALUES(4,'publish','mean of a column','0f8e8bccbc16fecdc5e2a5e3b7d6c75a23e97fd537fcda68e131d7a252ee70f8','2026-11-16T17:14:02+00:00',0,X'9428A3BFF1FF89E30F0FA2E409634622FCB1B5787B7D7F674CFBE8A3898E6175',X'E224C6A283479B45DAE1D783A34184EEB9AFF3CF3312EA62E09B7698AF6A7AD9');
INSERT INTO "entries" VALUES(5,'reserve','mean of a list','134ee976ce63bf19c0ef2e81e801c22b156f9dd32f906dc0eb33cc61664bfffb','2026-11-16T17:14:02+00:00',5,X'9D8CC759713F5B974932A826D85CB9CEFFE1562809799681B8DC025F26DC76C8',X'8FA3AB3199E108EDB798D5375D71B19AC567E9A958F8AEB7A1395FDB2B4D88F9');
INSERT INTO "entries" VALUES(6,'publish','mean of a list','134ee976ce63bf19c0ef2e81e801c22b156f9dd32f906dc0eb33cc61664bfffb','2026-11-16T17:14:02+00:00',0,X'3A9684807A77EBCEAABFCAF8CE8C17BA17583307C2B2656D8F1CAC06B253D575',X'B36D895E80222E55F4F904707203C99780F67307DCCD838B92998A5576880FD5');
INSERT INTO "entries" VALUES(7,'reserve','ridge of a frame','d53bc3ac24c8a3df3a2e6ed5e6634f51b787e1724d2f6236aeb341731798ac7e','2026-11-16T17:14:02+00:00',5,X'4F60CD252268B8FFD291BB5A8421A406916C93E3528158E8ED113EA0C3F08CB8',X'151244C8D997E651FE01007B37C543DA5FA41B5453A18C96DCCEA06DEB84B750');
INSERT INTO "entries" VALUES(8,'publish','ridge of a frame','d53bc3ac24c8a3df3a2e6ed5e6634f51b787e1724d2f6236aeb341731798ac7e','2026-11-16T17:14:02+00:00',0,X'252140D831FB9EFC0A67806C0C7934CC197C3B83DDB4C5A664391901172A5263',X'393194D42C31AF956C5C3AA673239E91751617046A5C84C6FBC2FA2A28120E41');
INSERT INTO "entries" VALUES(9,'reserve','ridge of arrays','d53bc3ac24c8a3df3a2e6ed5e6634f51b787e1724d2f6236aeb341731798ac7e','2026-11-16T17:14:02+00:00',5,X'4F60CD252268B8FFD291BB5A8421A406916C93E3528158E8ED113EA0C3F08CB8',X'49CCFE5DEE46C00887E60E8FEB66EDE9850D02A74BE74351F53970E6DD68E422');
INSERT INTO "entries" VALUES(10,'publish','ridge of arrays','d53bc3ac24c8a3df3a2e6ed5e6634f51b787e1724d2f6236aeb341731798ac7e','2026-11-16T17:14:02+00:00',0,X'431C02A4F38D52F89BEF87660A8C18A97C00EFE935E36F6740125F084ECA4295',X'5990105F424FE2860E67E73151301DF102764368047471A76623A789B2A2D320');
INSERT INTO "entries" VALUES(11,'reserve','mean by name','c5688c2f699b0e2ae6d570802e5d67b7afdd4c4b2545ac154ea5a723eea535cb','2026-11-16T17:14:02+00:00',5,X'9D8CC759713F5B974932A826D85CB9CEFFE1562809799681B8DC025F26DC76C8',X'4CD09C7FC0A415AFB1405AC5612AA0FAFD1C5C2043D58225BF44A2235FF106C0');
INSERT INTO "entries" VALUES(12,'publish','mean by name','c5688c2f699b0e2ae6d570802e5d67b7afdd4c4b2545ac154ea5a723eea535cb','2026-11-16T17:14:02+00:00',0,X'E47DD7C14C007939A5759A4BCC9A3F597F57B4C70243AC01562837E8AF09F55D',X'29F96BE8A98F3FFDE4116BB98756F00269151074438AC8ED3ECEF7DE78C6B100');
INSERT INTO "entries" VALUES(13,'reserve','ridge by name','26bd477f4af284813db9a27c9f6c2749d3a51898ef521861d1535c5fe5b8fccb','2026-11-16T17:14:02+00:00',5,X'4F60CD252268B8FFD291BB5A8421A406916C93E3528158E8ED113EA0C3F08CB8',X'FB6A05FB75111FBD37E017A2B807F7109A338FDFA154184B0FB0F546ADFBDAD8');
INSERT INTO "entries" VALUES(14,'publish','ridge by name','26bd477f4af284813db9a27c9f6c2749d3a51898ef521861d1535c5fe5b8fccb','2026-11-16T17:14:02+00:00',0,X'8992DA3A8020CDED73224857BF266689BEEFBD06A362DA3391E23923FDD2AD4B',X'23856931421C119EA0628BBE5A13B9E9658290AC851710F5A9AB84AF52D5BF0B');
INSERT INTO "entries" VALUES(15,'charge','survey','ebfb032522b528760756818d303bf14234eac78df8696bf9a99aa781b0fe9ed5','2026-11-16T17:14:02+00:00',2,X'81D9B3B516A06BDD5BD6E166731850C1F1966787F14AAE684F8CB1910E6CD3A8',X'06DFF16C9F3C8314B64D8C8B9F14CB1759281B9FC8D5AA484B7F30AAAE6B5D1C');
INSERT INTO "entries" VALUES(16,'charge','survey at delta','47b85657218568092529de2786ea4f5d2600743df178025da589d3d1016e8263','2026-11-16T17:14:02+00:00',2,X'54DDF49A958E3DE7AA850F5A1BF8C26B213A53D6FF5E7BDD10986BC4DAC4359B',X'E875D532AE3D7EC63126A2F5D15270AA61EBCC6711FFC6D8B4B8D1CDFDFF9094');
CREATE TABLE lines (
        number INTEGER NOT NULL, person BLOB NOT NULL, account INTEGER NOT NULL,
        amount INTEGER NOT NULL, PRIMARY KEY (number, person, account), CHECK (amount >= 0)) STRICT, WITHOUT ROWID;
INSERT INTO "lines" VALUES(1,X'39FCF9ECD420F927F6987F93740476A4',0,20000000000);
INSERT INTO "lines" VALUES(1,X'63A64659AB2C94230A57BD13BF7B3371',0,20000000000);
INSERT INTO "lines" VALUES(1,X'6698766D57CFC8FC157C0B67F99F4512',0,20000000000);
INSERT INTO "lines" VALUES(1,X'74B04FD6F229DE5A678F9C3C8162FA13',0,20000000000);
INSERT INTO "lines" VALUES(1,X'D6ED77911EF2A0674AFEF92FAF53365D',0,20000000000);
INSERT INTO "lines" VALUES(2,X'39FCF9ECD420F927F6987F93740476A4',2,1000000000);
INSERT INTO "lines" VALUES(2,X'39FCF9ECD420F927F6987F93740476A4',3,10000000000);
INSERT INTO "lines" VALUES(2,X'63A64659AB2C94230A57BD13BF7B3371',2,1000000000);
INSERT INTO "lines" VALUES(2,X'63A64659AB2C94230A57BD13BF7B3371',3,10000000000);
INSERT INTO "lines" VALUES(3,X'39FCF9ECD420F927F6987F93740476A4',0,500000000);
INSERT INTO "lines" VALUES(3,X'63A64659AB2C94230A57BD13BF7B3371',0,500000000);
INSERT INTO "lines" VALUES(3,X'6698766D57CFC8FC157C0B67F99F4512',0,500000000);
INSERT INTO "lines" VALUES(3,X'74B04FD6F229DE5A678F9C3C8162FA13',0,500000000);
INSERT INTO "lines" VALUES(3,X'D6ED77911EF2A0674AFEF92FAF53365D',0,500000000);
INSERT INTO "lines" VALUES(5,X'39FCF9ECD420F927F6987F93740476A4',0,500000000);
INSERT INTO "lines" VALUES(5,X'63A64659AB2C94230A57BD13BF7B3371',0,500000000);
INSERT INTO "lines" VALUES(5,X'6698766D57CFC8FC157C0B67F99F4512',0,500000000);
INSERT INTO "lines" VALUES(5,X'74B04FD6F229DE5A678F9C3C8162FA13',0,500000000);
INSERT INTO "lines" VALUES(5,X'D6ED77911EF2A0674AFEF92FAF53365D',0,500000000);
INSERT INTO "lines" VALUES(7,X'39FCF9ECD420F927F6987F93740476A4',0,1000000000);
INSERT INTO "lines" VALUES(7,X'63A64659AB2C94230A57BD13BF7B3371',0,1000000000);
INSERT INTO "lines" VALUES(7,X'6698766D57CFC8FC157C0B67F99F4512',0,1000000000);
INSERT INTO "lines" VALUES(7,X'74B04FD6F229DE5A678F9C3C8162FA13',0,1000000000);
INSERT INTO "lines" VALUES(7,X'D6ED77911EF2A0674AFEF92FAF53365D',0,1000000000);
INSERT INTO "lines" VALUES(9,X'39FCF9ECD420F927F6987F93740476A4',0,1000000000);
INSERT INTO "lines" VALUES(9,X'63A64659AB2C94230A57BD13BF7B3371',0,1000000000);
INSERT INTO "lines" VALUES(9,X'6698766D57CFC8FC157C0B67F99F4512',0,1000000000);
INSERT INTO "lines" VALUES(9,X'74B04FD6F229DE5A678F9C3C8162FA13',0,1000000000);
INSERT INTO "lines" VALUES(9,X'D6ED77911EF2A0674AFEF92FAF53365D',0,1000000000);
INSERT INTO "lines" VALUES(11,X'39FCF9ECD420F927F6987F93740476A4',0,500000000);
INSERT INTO "lines" VALUES(11,X'63A64659AB2C94230A57BD13BF7B3371',0,500000000);
INSERT INTO "lines" VALUES(11,X'6698766D57CFC8FC157C0B67F99F4512',0,500000000);
INSERT INTO "lines" VALUES(11,X'74B04FD6F229DE5A678F9C3C8162FA13',0,500000000);
INSERT INTO "lines" VALUES(11,X'D6ED77911EF2A0674AFEF92FAF53365D',0,500000000);
INSERT INTO "lines" VALUES(13,X'39FCF9ECD420F927F6987F93740476A4',0,1000000000);
INSERT INTO "lines" VALUES(13,X'63A64659AB2C94230A57BD13BF7B3371',0,1000000000);
INSERT INTO "lines" VALUES(13,X'6698766D57CFC8FC157C0B67F99F4512',0,1000000000);
INSERT INTO "lines" VALUES(13,X'74B04FD6F229DE5A678F9C3C8162FA13',0,1000000000);
INSERT INTO "lines" VALUES(13,X'D6ED77911EF2A0674AFEF92FAF53365D',0,1000000000);
INSERT INTO "lines" VALUES(15,X'39FCF9ECD420F927F6987F93740476A4',0,250000000);
INSERT INTO "lines" VALUES(15,X'63A64659AB2C94230A57BD13BF7B3371',0,125000000);
INSERT INTO "lines" VALUES(16,X'39FCF9ECD420F927F6987F93740476A4',3,1000);
INSERT INTO "lines" VALUES(16,X'63A64659AB2C94230A57BD13BF7B3371',3,1000);
CREATE TABLE releases (number INTEGER NOT NULL PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "releases" VALUES(3,'{
  "format": "sottovoce.release/1",
  "question": "mean",
  "parameters": {
    "bounds": [
      0.0,
      100.0
    ],
    "spread": 50.0,
    "missing": null
  },
  "value": 94.65625,
  "expected_error": 60.82762530316593,
  "error_is": "root mean square of sampling and noise, in units of the column",
  "guarantee": {
    "unit": "person",
    "neighbours": "replace",
    "currency": "pure epsilon",
    "arithmetic": "exact",
    "people": 5,
    "epsilon": {
      "least": 0.5,
      "most": 0.5,
      "distribution": [
        {
          "epsilon": 0.5,
          "people": 5
        }
      ]
    }
  },
  "noise": {
    "distribution": "discrete Laplace",
    "scale": 40.0000000001397,
    "integer_scale": 858993459203.0
  },
  "grid": {
    "low": 0.0,
    "high": 100.0,
    "step": 0.0001220703125,
    "cells": 819200,
    "shift": 23,
    "answer_step": 0.03125
  },
  "certificate": {
    "theorem": "Weighted mean with Laplace noise: each person l loses at most (W_l·N/2^t + 1)/b (pure ε, replace)",
    "page": "docs/theory/mean.md",
    "plan_digest": "445236f06bbddcc982ff81929d2ed051cba0b96d57b9bbbf14a691c4f48a22c5",
    "library": {
      "sottovoce": "0.1.0",
      "opendp": "0.16.0"
    },
    "ledger": {
      "id": "e9c55c3f6a2176f2e941a9133edda1b0",
      "entry": 3,
      "head": "d79b90d223018825cd26c635156cbdc7495d4f5eba550a03f4c0e27fc343ca19"
    }
  }
}
');
INSERT INTO "releases" VALUES(5,'{
  "format": "sottovoce.release/1",
  "question": "mean",
  "parameters": {
    "bounds": [
      0.0,
      100.0
    ],
    "spread": 50.0,
    "missing": null
  },
  "value": 0.0,
  "expected_error": 60.82762530316593,
  "error_is": "root mean square of sampling and noise, in units of the column",
  "guarantee": {
    "unit": "person",
    "neighbours": "replace",
    "currency": "pure epsilon",
    "arithmetic": "exact",
    "people": 5,
    "epsilon": {
      "least": 0.5,
      "most": 0.5,
      "distribution": [
        {
          "epsilon": 0.5,
          "people": 5
        }
      ]
    }
  },
  "noise": {
    "distribution": "discrete Laplace",
    "scale": 40.0000000001397,
    "integer_scale": 858993459203.0
  },
  "grid": {
    "low": 0.0,
    "high": 100.0,
    "step": 0.0001220703125,
    "cells": 819200,
    "shift": 23,
    "answer_step": 0.03125
  },
  "certificate": {
    "theorem": "Weighted mean with Laplace noise: each person l loses at most (W_l·N/2^t + 1)/b (pure ε, replace)",
    "page": "docs/theory/mean.md",
    "plan_digest": "445236f06bbddcc982ff81929d2ed051cba0b96d57b9bbbf14a691c4f48a22c5",
    "library": {
      "sottovoce": "0.1.0",
      "opendp": "0.16.0"
    },
    "ledger": {
      "id": "e9c55c3f6a2176f2e941a9133edda1b0",
      "entry": 5,
      "head": "8fa3ab3199e108edb798d5375d71b19ac567e9a958f8aeb7a1395fdb2b4d88f9"
    }
  }
}
');
INSERT INTO "releases" VALUES(7,'{
  "format": "sottovoce.release/1",
  "question": "ridge",
  "parameters": {
    "method": "output-tight",
    "alpha": 1.0,
    "coefficient_bound": null,
    "label": [
      0.0,
      100.0
    ],
    "features": [
      {
        "name": "age",
        "low": 0.0,
        "high": 200.0,
        "missing": null
      },
      {
        "name": "bmi",
        "low": 0.0,
        "high": 200.0,
        "missing": null
      }
    ]
  },
  "value": {
    "intercept": 52.17144840043068,
    "coefficients": {
      "age": -0.039511159379605774,
      "bmi": 0.00028566380485102114
    }
  },
  "expected_error": 32.32488156539853,
  "error_is": "root mean square of the noise in a prediction at the corner of the bounds; shrinkage comes on top",
  "guarantee": {
    "unit": "person",
    "neighbours": "replace",
    "currency": "pure epsilon",
    "arithmetic": "floating",
    "people": 5,
    "epsilon": {
      "least": 1.0,
      "most": 1.0,
      "distribution": [
        {
          "epsilon": 1.0,
          "people": 5
        }
      ]
    }
  },
  "noise": {
    "distribution": "radial noise on the solution",
    "rate": 2.6791293945882755,
    "root_mean_square": 1.292995262615941
  },
  "grid": {},
  "certificate": {
    "theorem": "Ridge with radial noise: each person l loses at most η·Δ_l, Δ_l what they can move the solution (pure ε, replace)",
    "page": "docs/theory/output.md",
    "plan_digest": "c0cf1010751fef28aa8d87c066bc17e33f2b01a900f53e1deaa77545f78a602f",
    "library": {
      "sottovoce": "0.1.0",
      "opendp": "0.16.0"
    },
    "ledger": {
      "id": "e9c55c3f6a2176f2e941a9133edda1b0",
      "entry": 7,
      "head": "151244c8d997e651fe01007b37c543da5fa41b5453a18c96dccea06deb84b750"
    }
  }
}
');
INSERT INTO "releases" VALUES(9,'{
  "format": "sottovoce.release/1",
  "question": "ridge",
  "parameters": {
    "method": "output-tight",
    "alpha": 1.0,
    "coefficient_bound": null,
    "label": [
      0.0,
      100.0
    ],
    "features": [
      {
        "name": "x0",
        "low": 0.0,
        "high": 200.0,
        "missing": null
      },
      {
        "name": "x1",
        "low": 0.0,
        "high": 200.0,
        "missing": null
      }
    ]
  },
  "value": {
    "intercept": 60.55914382479149,
    "coefficients": {
      "x0": 0.1213615848406967,
      "x1": -0.2683535850472743
    }
  },
  "expected_error": 32.32488156539853,
  "error_is": "root mean square of the noise in a prediction at the corner of the bounds; shrinkage comes on top",
  "guarantee": {
    "unit": "person",
    "neighbours": "replace",
    "currency": "pure epsilon",
    "arithmetic": "floating",
    "people": 5,
    "epsilon": {
      "least": 1.0,
      "most": 1.0,
      "distribution": [
        {
          "epsilon": 1.0,
          "people": 5
        }
      ]
    }
  },
  "noise": {
    "distribution": "radial noise on the solution",
    "rate": 2.6791293945882755,
    "root_mean_square": 1.292995262615941
  },
  "grid": {},
  "certificate": {
    "theorem": "Ridge with radial noise: each person l loses at most η·Δ_l, Δ_l what they can move the solution (pure ε, replace)",
    "page": "docs/theory/output.md",
    "plan_digest": "00619df14a8090dd0735f1ae814e7e0e17508094e8210b5c7331948889760379",
    "library": {
      "sottovoce": "0.1.0",
      "opendp": "0.16.0"
    },
    "ledger": {
      "id": "e9c55c3f6a2176f2e941a9133edda1b0",
      "entry": 9,
      "head": "49ccfe5dee46c00887e60e8feb66ede9850d02a74be74351f53970e6dd68e422"
    }
  }
}
');
INSERT INTO "releases" VALUES(11,'{
  "format": "sottovoce.release/1",
  "question": "mean",
  "parameters": {
    "bounds": [
      0.0,
      100.0
    ],
    "spread": 50.0,
    "missing": null
  },
  "value": 0.0,
  "expected_error": 60.82762530316593,
  "error_is": "root mean square of sampling and noise, in units of the column",
  "guarantee": {
    "unit": "person",
    "neighbours": "replace",
    "currency": "pure epsilon",
    "arithmetic": "exact",
    "people": 5,
    "epsilon": {
      "least": 0.5,
      "most": 0.5,
      "distribution": [
        {
          "epsilon": 0.5,
          "people": 5
        }
      ]
    }
  },
  "noise": {
    "distribution": "discrete Laplace",
    "scale": 40.0000000001397,
    "integer_scale": 858993459203.0
  },
  "grid": {
    "low": 0.0,
    "high": 100.0,
    "step": 0.0001220703125,
    "cells": 819200,
    "shift": 23,
    "answer_step": 0.03125
  },
  "certificate": {
    "theorem": "Weighted mean with Laplace noise: each person l loses at most (W_l·N/2^t + 1)/b (pure ε, replace)",
    "page": "docs/theory/mean.md",
    "plan_digest": "445236f06bbddcc982ff81929d2ed051cba0b96d57b9bbbf14a691c4f48a22c5",
    "library": {
      "sottovoce": "0.1.0",
      "opendp": "0.16.0"
    },
    "ledger": {
      "id": "e9c55c3f6a2176f2e941a9133edda1b0",
      "entry": 11,
      "head": "4cd09c7fc0a415afb1405ac5612aa0fafd1c5c2043d58225bf44a2235ff106c0"
    }
  }
}
');
INSERT INTO "releases" VALUES(13,'{
  "format": "sottovoce.release/1",
  "question": "ridge",
  "parameters": {
    "method": "output-tight",
    "alpha": 1.0,
    "coefficient_bound": null,
    "label": [
      0.0,
      100.0
    ],
    "features": [
      {
        "name": "age",
        "low": 0.0,
        "high": 200.0,
        "missing": null
      },
      {
        "name": "bmi",
        "low": 0.0,
        "high": 200.0,
        "missing": null
      }
    ]
  },
  "value": {
    "intercept": 23.462091648532148,
    "coefficients": {
      "age": 0.16737643455333553,
      "bmi": 0.01599116081146522
    }
  },
  "expected_error": 32.32488156539853,
  "error_is": "root mean square of the noise in a prediction at the corner of the bounds; shrinkage comes on top",
  "guarantee": {
    "unit": "person",
    "neighbours": "replace",
    "currency": "pure epsilon",
    "arithmetic": "floating",
    "people": 5,
    "epsilon": {
      "least": 1.0,
      "most": 1.0,
      "distribution": [
        {
          "epsilon": 1.0,
          "people": 5
        }
      ]
    }
  },
  "noise": {
    "distribution": "radial noise on the solution",
    "rate": 2.6791293945882755,
    "root_mean_square": 1.292995262615941
  },
  "grid": {},
  "certificate": {
    "theorem": "Ridge with radial noise: each person l loses at most η·Δ_l, Δ_l what they can move the solution (pure ε, replace)",
    "page": "docs/theory/output.md",
    "plan_digest": "c0cf1010751fef28aa8d87c066bc17e33f2b01a900f53e1deaa77545f78a602f",
    "library": {
      "sottovoce": "0.1.0",
      "opendp": "0.16.0"
    },
    "ledger": {
      "id": "e9c55c3f6a2176f2e941a9133edda1b0",
      "entry": 13,
      "head": "fb6a05fb75111fbd37e017a2b807f7109a338fdfa154184b0fb0f546adfbdad8"
    }
  }
}
');
CREATE UNIQUE INDEX one_reservation ON entries (key) WHERE what IN ('reserve', 'charge');
CREATE UNIQUE INDEX one_publication ON entries (key) WHERE what = 'publish';
COMMIT;
